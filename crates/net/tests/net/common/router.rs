//! An I2P router with SAM 3.1 that notes its requests and connects to one address, whatever the destination
//! is.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use testkit::sockets::{listen, relay};

/// How long a session takes to be created.
const TUNNEL_TIME: Duration = Duration::from_millis(200);

/// What the router has seen, and how it behaves.
#[derive(Default)]
pub struct Router {
    pub requests: Mutex<Vec<String>>,
    /// Sessions that are open.
    pub sessions: Mutex<Vec<String>>,
    /// Sessions that were created.
    pub created: AtomicUsize,
    pub refuses: AtomicBool,
    /// Whether sessions end as soon as they are there.
    pub forgets: AtomicBool,
}

/// Starts a router. It ends with the test program.
pub fn start(to: SocketAddr) -> (SocketAddr, Arc<Router>) {
    let router = Arc::new(Router::default());
    let shared = Arc::clone(&router);
    (listen(move |socket| serve(socket, to, &shared)), router)
}

fn field<'a>(request: &'a str, key: &str) -> &'a str {
    request.split(' ').find_map(|field| field.strip_prefix(key)).unwrap_or_default()
}

fn serve(mut socket: TcpStream, to: SocketAddr, router: &Router) -> io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let request = request.trim_end().to_owned();
        router.requests.lock().unwrap().push(request.clone());
        if request == "HELLO VERSION MIN=3.1 MAX=3.1" {
            socket.write_all(b"HELLO REPLY RESULT=OK VERSION=3.1\n")?;
        } else if request.starts_with("SESSION CREATE ") {
            thread::sleep(TUNNEL_TIME);
            if router.refuses.load(Ordering::Relaxed) {
                return socket.write_all(b"SESSION STATUS RESULT=I2P_ERROR MESSAGE=\"no tunnels\"\n");
            }
            router.created.fetch_add(1, Ordering::Relaxed);
            if !router.forgets.load(Ordering::Relaxed) {
                router.sessions.lock().unwrap().push(field(&request, "ID=").to_owned());
            }
            socket.write_all(b"SESSION STATUS RESULT=OK DESTINATION=priv~key\n")?;
        } else if request.starts_with("NAMING LOOKUP ") {
            let name = field(&request, "NAME=");
            let destination = name.trim_end_matches(".b32.i2p");
            let reply = format!("NAMING REPLY RESULT=OK NAME={name} VALUE=dest~{destination}==\n");
            socket.write_all(reply.as_bytes())?;
        } else if request.starts_with("STREAM CONNECT ") {
            let is_known = router.sessions.lock().unwrap().contains(&field(&request, "ID=").to_owned());
            if !is_known {
                return socket.write_all(b"STREAM STATUS RESULT=INVALID_ID\n");
            }
            let peer = TcpStream::connect(to)?;
            socket.write_all(b"STREAM STATUS RESULT=OK\n")?;
            return relay(reader, &socket, &peer);
        } else {
            return socket.write_all(b"I2P_ERROR\n");
        }
    }
}
