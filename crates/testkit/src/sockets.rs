//! Servers on loopback sockets, which end with the test program; among them, a SOCKS5 proxy.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Serves each connection to a free port in a thread of its own. Returns the address.
///
/// # Panics
/// If the system gives no port.
pub fn listen(serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback address has a free port");
    let address = listener.local_addr().expect("it is bound");
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(socket?));
        }
    });
    address
}

/// Passes on what two sockets send each other; `reader` reads from the first one.
pub fn relay(mut reader: impl Read, socket: &TcpStream, mut peer: &TcpStream) -> io::Result<()> {
    let (mut from, mut back) = (peer.try_clone()?, socket.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut back);
        back.shutdown(Shutdown::Write)
    });
    io::copy(&mut reader, &mut peer).map(drop)
}

/// User, password and name of each request. User and password are empty if the client offers none.
pub type SocksRequests = Arc<Mutex<Vec<(Vec<u8>, Vec<u8>, String)>>>;

/// Starts a SOCKS5 proxy that notes what it is asked, and connects to one address, whatever the name is.
pub fn socks_proxy(to: SocketAddr) -> (SocketAddr, SocksRequests) {
    let requests = SocksRequests::default();
    let noted = Arc::clone(&requests);
    (listen(move |socket| serve_socks(socket, to, &noted)), requests)
}

fn read_string(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0];
    socket.read_exact(&mut len)?;
    let mut bytes = vec![0; len[0].into()];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn serve_socks(mut socket: TcpStream, to: SocketAddr, noted: &SocksRequests) -> io::Result<()> {
    let mut version = [0];
    socket.read_exact(&mut version)?;
    let methods = read_string(&mut socket)?;
    let has_password = methods == [0, 2];
    assert!(version == [5] && (has_password || methods == [0]), "{version:?}, {methods:?}");
    socket.write_all(&[5, methods[methods.len() - 1]])?;
    let (mut user, mut password) = (Vec::new(), Vec::new());
    if has_password {
        socket.read_exact(&mut version)?;
        (user, password) = (read_string(&mut socket)?, read_string(&mut socket)?);
        socket.write_all(&[1, 0])?;
    }
    let mut request = [0; 4];
    socket.read_exact(&mut request)?;
    assert_eq!(request, [5, 1, 0, 3], "names are sent as names");
    let name = String::from_utf8_lossy(&read_string(&mut socket)?).into_owned();
    let mut port = [0; 2];
    socket.read_exact(&mut port)?;
    let name = format!("{name}:{}", u16::from_be_bytes(port));
    noted.lock().unwrap_or_else(PoisonError::into_inner).push((user, password, name));
    let peer = TcpStream::connect(to)?;
    socket.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    relay(&socket, &socket, &peer)
}
