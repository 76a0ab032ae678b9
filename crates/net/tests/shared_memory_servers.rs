//! Tests of clients whose server over shared memory is dead or hostile. The tests have a separate
//! process, because they examine all descriptors, mappings and threads of the process.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use corelane_net::{Endpoint, Listener, SharedMemoryTransport, Stream, Transport, WaitLimit};
use corelane_sys::clock::Monotonic;
use corelane_sys::thread::{self, Tid};
use corelane_sys::{poll, socket};

/// Environment variable with the path of the socket. It makes this test binary the server.
const PATH: &str = "CORELANE_TEST_SHM_SERVER";
const KIND: &str = "CORELANE_TEST_SHM_KIND";
const READY: &str = "listening";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Absent,
    Deaf,
    Hostile,
}

const KINDS: [Kind; 3] = [Kind::Absent, Kind::Deaf, Kind::Hostile];

struct Server {
    child: Child,
    /// The server ends when its input is closed, even if its parent is killed.
    _input: ChildStdin,
    path: PathBuf,
}

impl Server {
    fn start(kind: Kind, name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corelane-shm-{}-{name}", std::process::id()));
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "run_as_the_server", "--nocapture"]).env(PATH, &path).env(KIND, format!("{kind:?}"));
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map(Result::unwrap).any(|line| line.ends_with(READY)), "{kind:?} does not listen");
        Server { _input: child.stdin.take().unwrap(), child, path }
    }

    fn connect(&self) -> Box<dyn Stream> {
        SharedMemoryTransport::default().connect(&Endpoint::shared_memory(&self.path), None).unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn run_as_the_server() {
    let Some(path) = std::env::var_os(PATH).map(PathBuf::from) else { return };
    let named = std::env::var(KIND).unwrap();
    match KINDS.into_iter().find(|kind| format!("{kind:?}") == named).unwrap() {
        Kind::Absent => {
            let _listener = SharedMemoryTransport::default().listen(&Endpoint::shared_memory(path)).unwrap();
            println!("{READY}");
            until_the_parent_ends();
        }
        Kind::Deaf => {
            let listener = SharedMemoryTransport::default().listen(&Endpoint::shared_memory(path)).unwrap();
            println!("{READY}");
            let stream = accept(&*listener);
            let mut buffer = [0; 100];
            let count = stream.recv(&mut buffer, WaitLimit::Block).unwrap();
            stream.send(&buffer[..count], WaitLimit::Block).unwrap();
            until_the_parent_ends();
        }
        Kind::Hostile => scribble(&path),
    }
}

fn until_the_parent_ends() {
    io::stdin().lines().for_each(drop);
}

fn accept(listener: &dyn Listener) -> Box<dyn Stream> {
    loop {
        poll::wait_readable(listener.readiness_descriptor(), None).unwrap();
        match listener.accept() {
            Ok(stream) => return stream,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
        }
    }
}

fn scribble(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    println!("{READY}");
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for socket in listener.incoming() {
        let socket = socket.unwrap();
        let (_, memory) = socket::recv_with_descriptor(socket.as_fd(), &mut [0; 20], socket::WaitMode::Block).unwrap();
        // After random writes to the rings' memory, a client may connect again to open the channel
        // for lent memory. Such a connection brings no rings and is skipped.
        let Some(memory) = memory.map(File::from) else { continue };
        // If the server could shrink memory that the client uses, a signal would end the client.
        for length in [0, 4096, 1 << 30] {
            memory.set_len(length).unwrap_err();
        }
        while !poll::check_hang_up(socket.as_fd()).unwrap().is_both_closed {
            for _ in 0..1000 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Most writes change the control words of both directions.
                let offset = if state & 1 == 0 { (state >> 8) % 16 * 128 } else { (state >> 8) % 3072 * 4 };
                let value = if state & 6 == 0 { state as u32 } else { (state >> 40) as u32 % 70_000 };
                memory.write_all_at(&value.to_le_bytes(), offset).unwrap();
            }
            let _ = socket::send(socket.as_fd(), &[0; 3], socket::WaitMode::Now);
        }
    }
}

fn traces() -> Vec<String> {
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let descriptors = links.map(|link| format!("descriptor of {}", link.display()));
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mappings = maps.lines().map(|line| format!("mapping {line}"));
    let rings = descriptors.chain(mappings).filter(|trace| trace.contains("corelane-rings"));
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end while the list is read.
    let names = tasks.filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("comm")).ok());
    rings.chain(names.filter(|name| name.trim() == "net/peers")).collect()
}

fn until_asleep(thread: &OnceLock<Tid>) {
    let sleeps = || {
        let Some(thread) = thread.get() else { return false };
        let status = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw())).unwrap();
        status.rsplit_once(") ").unwrap().1.starts_with('S')
    };
    while !sleeps() {
        std::thread::yield_now();
    }
}

/// A wait of a client. Returns true if the client reports the end of the stream.
type Waits = fn(&dyn Stream) -> bool;

const IN_RECV: Waits = |stream| stream.recv(&mut [0; 8], WaitLimit::Block).unwrap() == 0;
const IN_SEND: Waits = |stream| loop {
    if let Err(error) = stream.send(&[1; 50_000], WaitLimit::Block) {
        return error.kind() == io::ErrorKind::BrokenPipe;
    }
};
const WITH_A_DEADLINE: Waits =
    |stream| stream.recv(&mut [0; 8], WaitLimit::Until(Monotonic::now() + Duration::from_secs(3600))).unwrap() == 0;

fn server_is_killed(kind: Kind, waits: Waits, name: &str) {
    let mut server = Server::start(kind, name);
    let client = server.connect();
    if kind == Kind::Deaf {
        client.send(b"there?", WaitLimit::Block).unwrap();
        assert_eq!(client.recv(&mut [0; 100], WaitLimit::Block).unwrap(), 6);
    }
    assert!(!traces().is_empty(), "{name}: no descriptor, mapping or thread is found");
    let who = OnceLock::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            who.set(thread::current_tid()).unwrap();
            waits(&*client)
        });
        until_asleep(&who);
        server.kill();
        assert!(waiting.join().unwrap(), "{name}: expected the end of the stream");
    });
    // A thread that does not wait must see the end, each time.
    assert_eq!(client.recv(&mut [0; 8], WaitLimit::Now).unwrap(), 0, "{name}");
    assert!(poll::check_hang_up(client.readiness_descriptor().unwrap()).unwrap().is_both_closed, "{name}");
    drop(client);
    assert_eq!(traces(), Vec::<String>::new(), "{name}: expected that no resource remains");
    assert!(server.path.exists());
    let listener = SharedMemoryTransport::default().listen(&Endpoint::shared_memory(&server.path)).unwrap();
    let (client, next) = (server.connect(), accept(&*listener));
    client.send(b"again", WaitLimit::Block).unwrap();
    assert_eq!(next.recv(&mut [0; 8], WaitLimit::Block).unwrap(), 5, "{name}");
}

fn server_is_hostile() {
    let server = Server::start(Kind::Hostile, "hostile");
    for _ in 0..20 {
        let client = server.connect();
        let mut buffer = vec![0; 100_000];
        let octets = [7; 5000];
        loop {
            let soon = WaitLimit::Until(Monotonic::now() + Duration::from_micros(100));
            let read = [WaitLimit::Now, soon].map(|wait| client.recv(&mut buffer, wait));
            let sent = [WaitLimit::Now, soon].map(|wait| client.send(&octets, wait));
            let _ = client.arm_readiness();
            let outcomes = read.into_iter().chain(sent);
            if outcomes.map(is_over).fold(false, |over, now| over | now) {
                break;
            }
        }
        assert_eq!(client.recv(&mut buffer, WaitLimit::Block).unwrap(), 0, "expected no bytes after the end");
        client.send(&octets, WaitLimit::Block).unwrap_err();
    }
    assert_eq!(traces(), Vec::<String>::new(), "expected that no resource remains");
    let mut server = server;
    assert!(server.child.try_wait().unwrap().is_none(), "expected that the server could not shrink the memory");
    server.kill();
    fs::remove_file(&server.path).unwrap();
}

fn is_over(outcome: io::Result<usize>) -> bool {
    match outcome.map_err(|error| error.kind()) {
        // The peer may announce that it reads or writes no more, and then continue. So these
        // results do not end the loop.
        Ok(_) | Err(io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::BrokenPipe) => false,
        Err(io::ErrorKind::InvalidData) => true,
        Err(other) => panic!("{other}"),
    }
}

/// All cases are one test, because the checks examine the whole process.
#[test]
fn clients_of_dead_and_hostile_servers() {
    if std::env::var_os(PATH).is_some() {
        return;
    }
    for (name, kind, waits) in [
        ("recv", Kind::Deaf, IN_RECV),
        ("send", Kind::Deaf, IN_SEND),
        ("deadline", Kind::Deaf, WITH_A_DEADLINE),
        ("recv-early", Kind::Absent, IN_RECV),
        ("send-early", Kind::Absent, IN_SEND),
    ] {
        server_is_killed(kind, waits, name);
    }
    server_is_hostile();
}
