//! Peers on Unix sockets and shared memory that pass descriptors whose close takes an hour. A
//! thread that closes such a descriptor cannot serve requests until the close ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corelane::{CallPolicies, Dispatch, Orb, PoolConfig, SystemExceptionKind as Kind, Timeout};
use corelane_net::{Endpoint, SharedMemoryTransport, Transport, UnixTransport};
use corelane_sys::lock::{LockScope, Mutex, MutexGuard};
use corelane_sys::ring::{RingPair, RingSizes};
use corelane_sys::{deferred_close, socket};
use corelane_tests::{EVERY_DISPATCH, ProbeRef, client, serve_with};

/// Time limit of calls and waits, much shorter than the close of an attacker's descriptor.
const LONG: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3600);
const ATTACKS: usize = 8;

/// Locked by each test that emulates an older kernel, because the emulation affects the whole
/// process.
static KERNEL: Mutex<()> = Mutex::new("the kernel", LockScope::Orb, ());

/// Runs `test(true)` if this kernel can refuse descriptors, and then `test(false)` with an emulated
/// older kernel.
fn on_both_kernels(test: impl Fn(bool)) {
    let _kernel: MutexGuard<'_, ()> = KERNEL.lock();
    let (near, _far) = socket::pair().unwrap();
    if socket::refuse_descriptors(near.as_fd()) {
        test(true);
    }
    socket::simulate_unrefusable_descriptors(true);
    test(false);
    socket::simulate_unrefusable_descriptors(false);
}

/// Runs `action` on a new thread and returns its result. Panics if the action panics or takes
/// longer than [`LONG`].
fn bounded<T: Send + 'static>(what: &str, action: impl FnOnce() -> T + Send + 'static) -> T {
    let result = Arc::new(Mutex::new("a result", LockScope::Orb, None));
    let shared = Arc::clone(&result);
    let thread = std::thread::spawn(move || {
        let value = action();
        *shared.lock() = Some(value);
    });
    let end = Instant::now() + LONG;
    loop {
        let is_over = thread.is_finished();
        if let Some(value) = result.lock().take() {
            return value;
        }
        assert!(Instant::now() < end && !is_over, "{what}: no result");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a connection, and returns both ends. The last close of the first end waits up to an hour,
/// until its unsent bytes are sent.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    socket::set_send_buffer_size(near.as_fd(), 128 << 10).unwrap();
    while near.write(&[0; 1 << 16]).is_ok() {}
    socket::set_linger(near.as_fd(), Some(HOUR)).unwrap();
    (near, far)
}

#[derive(Default)]
struct Passed {
    ends: Vec<TcpStream>,
    refused: usize,
}

impl Passed {
    fn pass(&mut self, to: BorrowedFd<'_>, octets: &[u8], before: &[BorrowedFd<'_>], count: usize, is_urgent: bool) {
        let (near, far): (Vec<_>, Vec<_>) = (0..count).map(|_| lingering()).unzip();
        let own = |fd: &BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
        let (to, before, octets) = (own(&to), before.iter().map(own).collect::<Vec<_>>(), octets.to_vec());
        let outcome = bounded("passing", move || {
            let all: Vec<_> = before.iter().map(AsFd::as_fd).chain(near.iter().map(AsFd::as_fd)).collect();
            let outcome = socket::pass_descriptors(to.as_fd(), &octets, &all, is_urgent);
            if outcome.is_err() {
                near.iter().for_each(|near| socket::set_linger(near.as_fd(), None).unwrap());
            }
            drop(all);
            std::thread::spawn(move || drop(near));
            outcome
        });
        match outcome {
            Ok(_) => self.ends.extend(far),
            Err(error) => {
                let ended = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                assert!(error.kind() == ErrorKind::PermissionDenied || ended.contains(&error.kind()), "{error}");
                self.refused += usize::from(error.kind() == ErrorKind::PermissionDenied);
            }
        }
    }

    fn assert_closed(self) {
        for mut end in self.ends {
            end.set_read_timeout(Some(LONG)).unwrap();
            let outcome = std::io::copy(&mut end, &mut std::io::sink());
            assert!(
                outcome.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::ConnectionReset),
                "{outcome:?}"
            );
        }
        bounded("the closing thread ends", || {
            while deferred_close::pending() > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

fn socket_path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("corelane-descriptors-{}-{name}", std::process::id()))
}

fn beside_a_good_client(
    carrier: &str,
    dispatch: Dispatch,
    what: &str,
    attack: impl Fn(&PathBuf, &mut Passed),
) -> Passed {
    let path = socket_path(carrier);
    let pool = PoolConfig::default().dispatch(dispatch);
    let server = serve_with(Orb::builder().pool(pool).listen(format!("{carrier}:{}", path.display())));
    let over = AtomicBool::new(false);
    let mut passed = Passed::default();
    std::thread::scope(|scope| {
        let good = scope.spawn(|| {
            let (_orb, probe) = client(&server.ior);
            let probe = probe.with_timeout(LONG);
            let mut calls = 0;
            let mut after = 0;
            while after < 50 {
                after += usize::from(over.load(Ordering::SeqCst));
                let argument = calls % 100;
                assert_eq!(probe.cube_long(argument).map_err(|error| format!("{what}: {error}")), Ok(argument.pow(3)));
                calls += 1;
            }
        });
        let threads = match dispatch {
            Dispatch::Reactive => 1,
            Dispatch::LeaderFollowers { threads } | Dispatch::HalfSyncHalfAsync { threads, .. } => threads,
            Dispatch::ThreadPerConnection { .. } => 0,
        };
        for _ in 0..threads {
            scope.spawn(|| client(&server.ior).1.with_timeout(LONG).slow(500).unwrap());
        }
        while server.probe.started().unwrap() < i32::try_from(threads).unwrap() {
            std::thread::sleep(Duration::from_millis(1));
        }
        attack(&path, &mut passed);
        over.store(true, Ordering::SeqCst);
        good.join().unwrap();
    });
    for argument in 0..20 {
        let (_orb, probe) = client(&server.ior);
        assert_eq!(probe.with_timeout(LONG).cube_long(argument).unwrap(), argument.pow(3), "{what}");
    }
    bounded(what, move || server.orb.shutdown(true).unwrap());
    passed
}

#[test]
fn descriptors_on_a_unix_connection_delay_no_thread() {
    on_both_kernels(|refuses| {
        for dispatch in EVERY_DISPATCH {
            let what = format!("{dispatch:?}, refuses: {refuses}");
            let passed = beside_a_good_client("unix", dispatch, &what, |path, passed| {
                let mut open = Vec::new();
                for attack in 0..ATTACKS {
                    for (octets, count, is_urgent) in [
                        (&b"GIOP\x01\x02\x01\x00"[..], 1, false),
                        (b"?", 1, false),
                        (b"!", 1, true),
                        (b"GIOP", 9, false),
                    ] {
                        let stream = UnixStream::connect(path).unwrap();
                        passed.pass(stream.as_fd(), octets, &[], count, is_urgent);
                        open.extend((attack % 2 == 0).then_some(stream));
                    }
                }
            });
            assert_eq!(passed.refused, if refuses { 4 * ATTACKS } else { 0 }, "{what}");
            assert_eq!(passed.ends.is_empty(), refuses, "{what}");
            passed.assert_closed();
        }
    });
}

fn announcement() -> [u8; 20] {
    *b"CLNRINGS\x01\0\0\0\0\x10\0\0\0\x10\0\0"
}

#[test]
fn descriptors_on_a_shared_memory_connection_delay_no_thread() {
    on_both_kernels(|refuses| {
        for dispatch in EVERY_DISPATCH {
            let what = format!("{dispatch:?}, refuses: {refuses}");
            let passed = beside_a_good_client("shm", dispatch, &what, |path, passed| {
                let announcement = announcement();
                let mut open = Vec::new();
                for attack in 0..ATTACKS {
                    let connect = || UnixStream::connect(path).unwrap();
                    let (_rings, memory) = RingPair::create(RingSizes::at_least(4096, 4096)).unwrap();
                    let streams = [connect(), connect(), connect(), connect()];
                    passed.pass(streams[0].as_fd(), &announcement, &[], 1, false);
                    passed.pass(streams[1].as_fd(), b"?", &[], 1, false);
                    passed.pass(streams[2].as_fd(), &announcement, &[], if attack == 0 { 253 } else { 9 }, false);
                    passed.pass(streams[3].as_fd(), b"!", &[], 1, true);
                    let others = [connect(), connect(), connect()];
                    passed.pass(others[0].as_fd(), &announcement, &[memory.as_fd()], 3, false);
                    passed.pass(others[1].as_fd(), &announcement[..5], &[], 1, false);
                    passed.pass(others[1].as_fd(), &announcement[5..], &[memory.as_fd()], 0, false);
                    passed.pass(others[2].as_fd(), &announcement, &[memory.as_fd()], 0, false);
                    passed.pass(others[2].as_fd(), b"!", &[], 1, true);
                    for _ in 0..4 {
                        passed.pass(others[2].as_fd(), b"bell", &[], 1, false);
                    }
                    open.extend((attack % 2 == 0).then_some((streams, others)));
                }
            });
            assert!(passed.ends.len() >= 253 + 12 * (ATTACKS - 1), "{what}: {}", passed.ends.len());
            passed.assert_closed();
        }
    });
}

#[test]
fn descriptors_to_a_listener_that_closes_delay_no_thread() {
    on_both_kernels(|refuses| {
        for accepts in [false, true] {
            let paths = [socket_path("gone-unix"), socket_path("gone-shm")];
            let listeners = [
                UnixTransport.listen(&Endpoint::unix(&paths[0])).unwrap(),
                SharedMemoryTransport::default().listen(&Endpoint::shared_memory(&paths[1])).unwrap(),
            ];
            let mut passed = Passed::default();
            let mut streams = Vec::new();
            for path in paths.iter().cycle().take(2 * ATTACKS) {
                let stream = UnixStream::connect(path).unwrap();
                passed.pass(stream.as_fd(), b"CLNRINGS", &[], 1, false);
                streams.push(stream);
            }
            assert_eq!(passed.refused, if refuses { ATTACKS } else { 0 });
            bounded("the drop of a listener ends", move || {
                for listener in &listeners {
                    while accepts && !listener.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {}
                }
            });
            passed.assert_closed();
        }
    });
}

#[test]
fn descriptors_to_a_client_delay_no_call() {
    on_both_kernels(|refuses| {
        for carrier in ["unix", "shm"] {
            let what = format!("{carrier}, refuses: {refuses}");
            let path = socket_path(&format!("server-{carrier}"));
            let real = serve_with(Orb::builder().listen(format!("{carrier}:{}", path.display())));
            let ior = real.ior.clone();
            bounded(&what, move || real.orb.shutdown(true).unwrap());
            let listener = UnixListener::bind(&path).unwrap();
            let server = std::thread::spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                let mut passed = Passed::default();
                for _ in 0..ATTACKS {
                    passed.pass(stream.as_fd(), b"GIOP", &[], 1, false);
                    passed.pass(stream.as_fd(), b"!", &[], 1, true);
                }
                let _ = std::io::copy(&mut (&stream).take(1 << 20), &mut std::io::sink());
                passed
            });
            let call = what.clone();
            let error = bounded(&what, move || {
                // If the kernel refuses descriptors, no bytes arrive, so the call needs a time-out.
                let timeout = Some(Timeout::Precise(Duration::from_secs(3)));
                let orb = Orb::builder().call_policies(CallPolicies { timeout, ..CallPolicies::NONE }).build().unwrap();
                let probe = ProbeRef::from_object(orb.string_to_object(&ior).unwrap().unwrap());
                let error = probe.cube_long(3).expect_err(&call);
                orb.shutdown(true).unwrap();
                error
            });
            assert!(matches!(error.kind(), Kind::Timeout | Kind::CommFailure | Kind::Transient), "{what}: {error}");
            std::fs::remove_file(&path).unwrap();
            let passed = bounded(&what, move || server.join().unwrap());
            assert_eq!(passed.ends.is_empty(), refuses, "{what}");
            passed.assert_closed();
        }
    });
}
