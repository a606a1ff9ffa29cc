//! `export history` beside a server of the Electrum protocol, electrs, which has an index of its own.
//!
//! With PEREGRINE_ELECTRS, the path of electrs, and PEREGRINE_BITCOIND, that of a bitcoind from version 31
//! on; without them, nothing is compared.

#![cfg(feature = "export")]

use crate::export_history::{Row, export, hash_text, rows};
use crate::prelude::*;

/// Time in which the server begins to listen.
const PATIENCE: Duration = Duration::from_secs(120);

/// electrs beside a node; it ends with the test.
struct Server {
    process: Child,
    connection: BufReader<TcpStream>,
}

impl Server {
    /// Lets the server make its index of the node's blocks, and starts it.
    fn start(node: &Node, datadir: &Path) -> Self {
        let at_free_port = || format!("127.0.0.1:{}", free_port().unwrap());
        let (address, [rpc_address, credentials]) = (at_free_port(), node.rpc_server());
        let conf = datadir.join("electrs.toml");
        fs::write(&conf, format!("auth = \"{credentials}\"\n")).unwrap();
        let command = || {
            let mut command = Command::new(std::env::var_os("PEREGRINE_ELECTRS").unwrap());
            command
                .args("--skip-default-conf-files --skip-block-download-wait --network regtest".split(' '))
                .args(["--daemon-rpc-addr", &rpc_address, "--electrum-rpc-addr", &address])
                .args(["--conf", text(&conf), "--daemon-dir", text(datadir)])
                .args(["--monitoring-addr", &at_free_port(), "--db-dir", text(&datadir.join("electrs"))])
                .stderr(Stdio::null());
            command
        };
        // Asked before it has any block, it ends.
        assert!(command().arg("--sync-once").status().unwrap().success());
        let mut process = command().spawn().unwrap();
        let start = Instant::now();
        let connection = loop {
            match TcpStream::connect(&address) {
                Ok(stream) => break BufReader::new(stream),
                Err(error) => {
                    let ended = process.try_wait().unwrap();
                    assert!(ended.is_none() && start.elapsed() < PATIENCE, "electrs: {error} {ended:?}");
                }
            }
            thread::sleep(Duration::from_millis(100));
        };
        Self { process, connection }
    }

    /// Calls a method; returns null if it fails.
    fn call(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params});
        self.connection.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
        let mut line = String::new();
        assert!(self.connection.read_line(&mut line).unwrap() > 0, "electrs has closed the connection");
        serde_json::from_str::<Value>(&line).unwrap()["result"].take()
    }

    /// The transactions of a script, each with its height, and the balance.
    fn history(&mut self, script_hash: &str) -> (Vec<(String, String)>, String) {
        let entries = self.call("blockchain.scripthash.get_history", json!([script_hash]));
        let balance = self.call("blockchain.scripthash.get_balance", json!([script_hash]));
        assert_eq!(balance["unconfirmed"], 0);
        let text = |value: &Value| value.to_string().replace('"', "");
        let entry = |entry: &Value| (text(&entry["height"]), text(&entry["tx_hash"]));
        (entries.as_array().unwrap().iter().map(entry).collect(), text(&balance["confirmed"]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
    }
}

/// The same of the rows of `history`, by script.
fn histories(rows: Vec<Row>) -> BTreeMap<String, (Vec<(String, String)>, String)> {
    let mut found: BTreeMap<_, (Vec<_>, String)> = BTreeMap::new();
    for row in rows {
        let (transactions, balance) = found.entry(row["script_hash"].clone()).or_default();
        let transaction = (row["height"].clone(), row["txid"].clone());
        // A transaction has a row for each of its inputs and outputs.
        if transactions.last() != Some(&transaction) {
            transactions.push(transaction);
        }
        balance.clone_from(&row["balance"]);
    }
    found
}

/// A node mines, gives up what it has mined, and mines otherwise. Returns the height of its best block.
fn reorganise(node: &Node) -> u32 {
    let mined = node.call("generatetodescriptor", json!([4, "raw(5152)"])).unwrap();
    node.call("invalidateblock", json!([mined[1]])).unwrap();
    node.call("generatetodescriptor", json!([7, "raw(5153)"])).unwrap();
    node.height()
}

#[test]
fn transactions_and_balances_of_all_scripts_are_those_of_an_electrum_server() {
    if std::env::var_os("PEREGRINE_ELECTRS").is_none() {
        return testkit::data::skip("PEREGRINE_ELECTRS does not name electrs");
    }
    let (dir, chain) = rebuilt();
    let Some(node) = Node::start(dir.path(), &[]) else { return };
    let tip = reorganise(&node);
    assert_eq!(tip, chain.tip().height + 8);
    node.stop().unwrap();
    let out = |name: &str| dir.path().join(name);
    export(dir.path(), "history", &out("history"), &["--format", "csv"]);
    export(dir.path(), "outputs", &out("outputs"), &["--format", "csv", "--columns", "height,script"]);
    let (mut ours, outputs) = (histories(rows(&out("history"), "history")), rows(&out("outputs"), "outputs"));
    let scripts: BTreeSet<&str> = outputs.iter().map(|row| row["script"].as_str()).collect();
    let genesis = outputs.iter().find(|row| row["height"] == "0").unwrap()["script"].as_str();

    let node = Node::start(dir.path(), &["-rest"]).unwrap();
    let mut server = Server::start(&node, dir.path());
    assert_eq!(server.call("blockchain.headers.subscribe", json!([]))["height"], tip);
    let (mut compared, mut absent) = (0, 0);
    for script in scripts {
        let script_hash = hash_text(script);
        let theirs = server.history(&script_hash);
        match ours.remove(&script_hash) {
            Some(ours) => {
                assert_eq!(ours, theirs, "{script}");
                compared += 1;
            }
            // The server counts the output of the genesis block, which never becomes a coin.
            None if script == genesis => {
                assert!(theirs.0.len() == 1, "{theirs:?}");
                assert!(theirs.0[0].0 == "0", "{theirs:?}");
                assert!(theirs.1 == "5000000000", "{theirs:?}");
            }
            // It leaves out other outputs that never become coins.
            None => {
                assert_eq!(theirs, (Vec::new(), "0".to_owned()), "{script}");
                absent += 1;
            }
        }
    }
    assert!(ours.is_empty() && compared > 100 && absent > 0, "{} {compared} {absent}", ours.len());
}
