//! A signal that one thread sends to another, which waits for it. Benchmarks compare it with other
//! ways to wake a thread.
//!
//! The signal is SIGURG, which the kernel ignores by default, so a signal to a thread that does not
//! wait has no effect.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::Duration;

use crate::syscall;
use crate::thread::{self, Tid};

const SIGNAL: libc::c_int = libc::SIGURG;

/// A receiver of the signals to the thread that created it.
///
/// The thread blocks the signal until the value is dropped. A second signal before the thread takes
/// the first has no effect.
#[derive(Debug)]
pub struct SignalReceiver {
    thread: Tid,
    not_send: PhantomData<*const ()>,
}

/// Sends signals to the thread of a [`SignalReceiver`].
#[derive(Clone, Copy, Debug)]
pub struct SignalSender {
    thread: Tid,
}

impl SignalReceiver {
    /// Creates a receiver for the calling thread, and blocks the signal for this thread.
    ///
    /// # Errors
    /// If the kernel refuses to block the signal.
    pub fn for_current_thread() -> io::Result<Self> {
        change_mask(libc::SIG_BLOCK)?;
        Ok(SignalReceiver { thread: thread::current_tid(), not_send: PhantomData })
    }

    /// Returns the sender of signals to this thread.
    #[must_use]
    pub fn sender(&self) -> SignalSender {
        SignalSender { thread: self.thread }
    }

    /// Waits for a signal. Returns false if none arrives within `patience`, or if another signal
    /// interrupts the wait.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn wait(&self, patience: Duration) -> io::Result<bool> {
        let set = signal_set();
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        // SAFETY: the set and the time are live structures, and a null pointer asks for no
        // information about the signal.
        let waited =
            syscall::once(|| unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const time) });
        match waited {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for SignalReceiver {
    fn drop(&mut self) {
        // Ignore errors: the call fails only for an unknown operation.
        let _ = change_mask(libc::SIG_UNBLOCK);
    }
}

impl SignalSender {
    /// Sends a signal to the thread.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn send(&self) -> io::Result<()> {
        // SAFETY: the call has only integers as arguments. The signal's default effect is none.
        let sent =
            syscall::once(|| unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.thread.as_raw(), SIGNAL) });
        sent.map(drop)
    }
}

fn signal_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set, and `sigaddset` gets an initialised set and a valid
    // signal.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), SIGNAL);
        set.assume_init()
    }
}

fn change_mask(how: libc::c_int) -> io::Result<()> {
    let set = signal_set();
    // SAFETY: the set is a live structure, and a null pointer asks for no former mask.
    match unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_signal_ends_one_wait() {
        let receiver = SignalReceiver::for_current_thread().unwrap();
        assert!(!receiver.wait(Duration::from_millis(1)).unwrap());
        let sender = receiver.sender();
        let (ready, other) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let own = SignalReceiver::for_current_thread().unwrap();
            ready.send(own.sender()).unwrap();
            for _ in 0..100 {
                assert!(own.wait(Duration::from_secs(20)).unwrap());
                sender.send().unwrap();
            }
        });
        let other = other.recv().unwrap();
        for _ in 0..100 {
            other.send().unwrap();
            assert!(receiver.wait(Duration::from_secs(20)).unwrap());
        }
        thread.join().unwrap();
        let sender = receiver.sender();
        drop(receiver);
        sender.send().unwrap();
    }
}
