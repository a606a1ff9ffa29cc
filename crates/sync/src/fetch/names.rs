//! The names of peers that the user gave, and the addresses to which they lead.

use crate::options::PeerOptions;
use crossbeam::channel::{Receiver, Sender, unbounded};
use net::{address::PeerAddress, client::Client, pool::Target};
use std::{io, net::ToSocketAddrs as _, thread};

type Resolved = (Target, io::Result<Vec<PeerAddress>>);

/// Asks the system for the addresses of names, each in a thread of its own, which may outlive the download:
/// the resolver cannot be interrupted.
pub struct Names {
    found: (Sender<Resolved>, Receiver<Resolved>),
    asked: Vec<Target>,
}

impl Names {
    pub fn new() -> Self {
        Self { found: unbounded(), asked: Vec::new() }
    }

    /// Gives the client what was found, and asks for what it needs. Returns the names without an address that
    /// can be used, and why.
    pub fn update(&mut self, options: &PeerOptions, client: &mut Client) -> Vec<(String, String)> {
        let mut failed = Vec::new();
        for (name, found) in self.found.1.try_iter() {
            self.asked.retain(|asked| *asked != name);
            let is_allowed = |address: &PeerAddress| options.networks.contains(&address.host.network());
            let why = match &found {
                Ok(_) => "the name has no address in the networks that are allowed".to_owned(),
                Err(error) => format!("the name cannot be resolved: {error}"),
            };
            let all = found.into_iter().flatten().filter(is_allowed).map(Target::Address);
            let addresses: Vec<Target> = all.collect();
            client.dialer.resolved(&name, &addresses, client.pool.now());
            failed.extend(addresses.is_empty().then(|| (name.to_string(), why)));
        }
        let names = client.dialer.unresolved(client.pool.now()).into_iter();
        for name in names.filter(|name| !self.asked.contains(name)).collect::<Vec<_>>() {
            let found_in = self.found.0.clone();
            self.asked.push(name.clone());
            let resolve = move || {
                let found = name.to_string().to_socket_addrs();
                let found = found.map(|found| found.map(PeerAddress::from_socket).collect());
                // If the download has ended, nobody needs the addresses.
                let _ = found_in.send((name, found));
            };
            // If the thread cannot be started, the name is asked for in this one's next try.
            if thread::Builder::new().name("names".to_owned()).spawn(resolve).is_err() {
                self.asked.pop();
            }
        }
        failed
    }
}
