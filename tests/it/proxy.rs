//! A proxy between a store and its server that does what networks do.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// What happens to the bytes of each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// They pass.
    #[default]
    None,
    /// New connections are closed at once.
    Refuse,
    /// What the client sends disappears; the connection stays.
    Swallow,
    /// What the client sends is kept and delivered, in order, once the fault is over.
    Hold,
    /// Connections are cut as soon as the client sends something.
    Cut,
    /// Requests are carried out, and their replies disappear.
    LoseReply,
    /// Requests are carried out, and the connection is cut instead of the reply.
    CutReply,
    /// Replies come byte by byte, with such a pause.
    Trickle(Duration),
}

#[derive(Default)]
struct State {
    fault: Fault,
    connections: usize,
    /// Bytes of requests seen since the fault was set.
    seen: usize,
}

/// The proxy; ends with its last connection.
pub(crate) struct FaultProxy {
    address: SocketAddr,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl FaultProxy {
    /// A proxy in front of the server at this Unix socket.
    pub(crate) fn before(server: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                lock(&accepting).connections += 1;
                if lock(&accepting).fault == Fault::Refuse {
                    continue;
                }
                let Ok(server) = UnixStream::connect(&server) else {
                    continue;
                };
                carry(client, server, &accepting);
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// From now on this happens.
    pub(crate) fn set(&self, fault: Fault) {
        let mut state = lock(&self.shared);
        state.fault = fault;
        state.seen = 0;
        self.shared.1.notify_all();
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.shared).connections
    }

    /// Waits until the client has sent something since the fault was set.
    pub(crate) fn await_request(&self) {
        let (_state, waited) = self
            .shared
            .1
            .wait_timeout_while(lock(&self.shared), Duration::from_secs(10), |s| s.seen == 0)
            .unwrap();
        assert!(!waited.timed_out(), "no request came");
    }
}

fn lock(shared: &Arc<(Mutex<State>, Condvar)>) -> MutexGuard<'_, State> {
    shared.0.lock().unwrap()
}

fn carry(client: TcpStream, server: UnixStream, shared: &Arc<(Mutex<State>, Condvar)>) {
    client.set_nodelay(true).unwrap();
    let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (up, down) = (Arc::clone(shared), Arc::clone(shared));
    thread::spawn(move || requests(from_client, to_server, &up));
    thread::spawn(move || replies(server, client, &down));
}

fn requests(mut client: TcpStream, mut server: UnixStream, shared: &Arc<(Mutex<State>, Condvar)>) {
    let mut chunk = [0; 4096];
    while let Ok(size @ 1..) = client.read(&mut chunk) {
        let mut state = lock(shared);
        state.seen += size;
        shared.1.notify_all();
        match state.fault {
            Fault::Swallow => continue,
            Fault::Cut => {
                let _ = client.shutdown(Shutdown::Both);
                break;
            }
            Fault::Hold => drop(
                shared
                    .1
                    .wait_while(state, |s| s.fault == Fault::Hold)
                    .unwrap(),
            ),
            _ => drop(state),
        }
        if server.write_all(&chunk[..size]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Write);
}

fn replies(mut server: UnixStream, mut client: TcpStream, shared: &Arc<(Mutex<State>, Condvar)>) {
    let mut chunk = [0; 4096];
    while let Ok(size @ 1..) = server.read(&mut chunk) {
        let fault = lock(shared).fault;
        let passed = match fault {
            Fault::LoseReply => continue,
            Fault::CutReply => break,
            Fault::Trickle(pause) => chunk[..size].iter().try_for_each(|byte| {
                thread::sleep(pause);
                client.write_all(&[*byte])
            }),
            _ => client.write_all(&chunk[..size]),
        };
        if passed.is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}
