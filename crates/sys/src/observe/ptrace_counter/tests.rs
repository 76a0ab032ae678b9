//! Tests with a forked child, which reads bytes. For each byte it makes as many atomic additions as
//! the byte says, and then sends the byte back.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

static SUM: AtomicU64 = AtomicU64::new(0);

/// Request that makes the child spin for ever; other requests are numbers of additions.
const SPIN: u8 = 255;

struct Child {
    id: libc::pid_t,
    requests: PipeWriter,
    answers: PipeReader,
}

impl Child {
    fn start() -> Child {
        let (theirs, requests) = io::pipe().unwrap();
        let (answers, ours) = io::pipe().unwrap();
        let (from, to) = (theirs.as_raw_fd(), ours.as_raw_fd());
        // SAFETY: the child calls nothing but system calls, which a forked child may.
        let id = unsafe { libc::fork() };
        if id == 0 {
            serve(from, to);
        }
        assert!(id > 0);
        Child { id, requests, answers }
    }

    fn counted(&mut self, stepped: &mut PtraceCounter, request: u8) -> InstructionCounts {
        stepped.step_until_all_wait(soon()).unwrap();
        let before = stepped.counts().next().unwrap();
        self.requests.write_all(&[request]).unwrap();
        let bound = soon();
        while stepped.counts().next().unwrap() == before {
            assert!(clock::now() < bound);
            stepped.step_until_all_wait(soon()).unwrap();
        }
        assert_eq!(self.answer(), request);
        stepped.counts().next().unwrap() - before
    }

    fn answer(&mut self) -> u8 {
        let mut octet = [0];
        self.answers.read_exact(&mut octet).unwrap();
        octet[0]
    }

    fn end(self) -> libc::c_int {
        let Child { id, requests, answers } = self;
        drop((requests, answers));
        let mut status = 0;
        // SAFETY: `status` is one writable int, and the child is this test's.
        syscall::retry_interrupted(|| unsafe { libc::waitpid(id, &raw mut status, libc::__WALL) }).unwrap();
        status
    }
}

fn serve(from: libc::c_int, to: libc::c_int) -> ! {
    // SAFETY: the calls take numbers only. The parent's own descriptors stay open in the parent.
    unsafe {
        libc::dup2(from, 0);
        libc::dup2(to, 1);
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
    }
    let mut octet = 0_u8;
    // The C library's cancellable functions have atomic operations of their own, so the child makes
    // its system calls directly.
    // SAFETY: `octet` is one live byte.
    while unsafe { libc::syscall(libc::SYS_read, 0, &raw mut octet, 1) } == 1 {
        if octet == SPIN {
            loop {
                SUM.load(Ordering::Relaxed);
            }
        }
        for _ in 0..octet {
            SUM.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: `octet` is one live byte.
        unsafe { libc::syscall(libc::SYS_write, 1, &raw const octet, 1) };
    }
    // SAFETY: the call ends the child without the parent's exit handlers.
    unsafe { libc::_exit(7) }
}

fn soon() -> Monotonic {
    clock::now() + Duration::from_secs(60)
}

fn attached(child: libc::pid_t) -> PtraceCounter {
    PtraceCounter::attach(child as u32, &[child as u32]).expect("the kernel lets this process trace (ptrace)")
}

#[test]
fn each_atomic_operation_and_system_call_is_counted() {
    let mut child = Child::start();
    let mut stepped = attached(child.id);
    // At the first request the thread is in the system call that `attach` interrupted. This call
    // would count, so the first request is not compared.
    child.counted(&mut stepped, 1);
    let counted: Vec<InstructionCounts> = [0, 1, 5, 5].map(|request| child.counted(&mut stepped, request)).to_vec();
    for (counts, atomics) in counted.iter().zip([0, 1, 5, 5]) {
        assert_eq!((counts.atomics, counts.system_calls), (atomics, 2), "{counted:?}");
    }
    assert!(counted[1].instructions > counted[0].instructions && counted[3] == counted[2], "{counted:?}");
    assert!(!stepped.has_ended());
    drop(stepped);
    child.requests.write_all(&[9]).unwrap();
    assert_eq!(child.answer(), 9);
    let status = child.end();
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:x}");
}

#[test]
fn thread_that_never_waits_is_detached_at_the_deadline() {
    let mut child = Child::start();
    let mut stepped = attached(child.id);
    child.requests.write_all(&[SPIN]).unwrap();
    let refused = loop {
        // A call without an error found the child waiting, because the child had not yet read its
        // only request. The loop then tries again.
        if let Err(error) = stepped.step_until_all_wait(clock::now() + Duration::from_millis(20)) {
            break error;
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    drop(stepped);
    // SAFETY: the child is this test's and has not been waited for.
    unsafe { libc::kill(child.id, libc::SIGKILL) };
    assert!(libc::WIFSIGNALED(child.end()));
}

#[test]
fn ended_process_is_reported() {
    let child = Child::start();
    let mut stepped = attached(child.id);
    stepped.step_until_all_wait(soon()).unwrap();
    drop((child.requests, child.answers));
    let bound = soon();
    while !stepped.has_ended() {
        assert!(clock::now() < bound);
        stepped.step_until_all_wait(soon()).unwrap();
    }
    assert!(stepped.counts().next().unwrap().instructions > 0);
    drop(stepped);
}

#[test]
fn child_dies_with_the_tracing_thread() {
    let child = Child::start();
    let id = child.id;
    std::thread::spawn(move || std::mem::forget(attached(id))).join().unwrap();
    let status = child.end();
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL, "{status:x}");
}

#[test]
fn unknown_thread_is_refused() {
    let refused = PtraceCounter::attach(1 << 30, &[1 << 30]).unwrap_err();
    let missing = refused.raw_os_error() == Some(libc::ESRCH);
    assert!(missing || matches!(refused.kind(), io::ErrorKind::PermissionDenied), "{refused}");
}
