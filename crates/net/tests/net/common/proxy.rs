//! A SOCKS5 proxy that notes what it was asked and connects to one address, whatever the name is.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// User, password and name of each request.
pub type Requests = Arc<Mutex<Vec<(Vec<u8>, Vec<u8>, String)>>>;

/// Starts a proxy. It ends with the test program.
pub fn start(to: SocketAddr) -> (SocketAddr, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Requests::default();
    let noted = Arc::clone(&requests);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let noted = Arc::clone(&noted);
            thread::spawn(move || serve(socket.unwrap(), to, &noted).ok());
        }
    });
    (address, requests)
}

fn read_string(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0];
    socket.read_exact(&mut len)?;
    let mut bytes = vec![0; len[0].into()];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn serve(mut socket: TcpStream, to: SocketAddr, noted: &Requests) -> io::Result<()> {
    let mut version = [0];
    socket.read_exact(&mut version)?;
    assert_eq!((version, read_string(&mut socket)?), ([5], vec![0, 2]));
    socket.write_all(&[5, 2])?;
    socket.read_exact(&mut version)?;
    let (user, password) = (read_string(&mut socket)?, read_string(&mut socket)?);
    socket.write_all(&[1, 0])?;
    let mut request = [0; 4];
    socket.read_exact(&mut request)?;
    assert_eq!(request, [5, 1, 0, 3], "names are sent as names");
    let name = String::from_utf8(read_string(&mut socket)?).unwrap();
    let mut port = [0; 2];
    socket.read_exact(&mut port)?;
    noted.lock().unwrap().push((user, password, format!("{name}:{}", u16::from_be_bytes(port))));
    let peer = TcpStream::connect(to)?;
    socket.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    let (mut from, mut back) = (socket.try_clone()?, peer.try_clone()?);
    thread::spawn(move || io::copy(&mut back, &mut from));
    io::copy(&mut socket, &mut &peer)?;
    Ok(())
}
