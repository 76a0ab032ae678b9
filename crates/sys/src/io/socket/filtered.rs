//! Sockets that accept no descriptors from their peers. A thread that reads or closes such a socket
//! never waits for the close of a passed descriptor.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    ShutdownDirection, WaitMode, accept, options, recv, recv_without_descriptors, refuse_descriptors, shutdown,
    unread_bytes,
};
use crate::{deferred_close, process};

/// A connected stream socket that accepts no descriptors from its peer.
#[derive(Debug)]
pub struct DescriptorFilterSocket {
    fd: ManuallyDrop<OwnedFd>,
    /// True if the receive queue may contain descriptors or receive them.
    may_receive: AtomicBool,
    is_refusing: bool,
    /// Fork generation of the process that opened the socket; unused if no descriptor can be
    /// passed. In a forked child the drop only closes the descriptor, because the parent may use
    /// the connection.
    forks: u64,
}

impl DescriptorFilterSocket {
    /// Wraps a socket to which no descriptor can be passed: TCP, or Unix where the kernel
    /// [refuses](super::is_refusing_descriptors) descriptors.
    pub fn without_descriptor_passing(fd: OwnedFd) -> Self {
        DescriptorFilterSocket {
            fd: ManuallyDrop::new(fd),
            may_receive: AtomicBool::new(false),
            is_refusing: false,
            forks: 0,
        }
    }

    /// Wraps a Unix socket to which descriptors can be passed.
    pub fn for_unix_socket(fd: OwnedFd) -> Self {
        // The kernel never refuses this option. Without it a read would discard urgent bytes, and
        // the descriptors with them.
        let _ = options::set_urgent_inline(fd.as_fd());
        DescriptorFilterSocket {
            fd: ManuallyDrop::new(fd),
            may_receive: AtomicBool::new(true),
            is_refusing: false,
            forks: process::fork_generation(),
        }
    }

    /// Makes the kernel refuse further descriptors, if the kernel supports it.
    pub fn refuse_descriptors(&mut self) {
        self.is_refusing = *self.may_receive.get_mut() && refuse_descriptors(self.as_fd());
        // Bytes that arrived before the refusal may have brought a descriptor, so the unread bytes
        // are counted after the refusal.
        if self.is_refusing && unread_bytes(self.as_fd()).is_ok_and(|octets| octets == 0) {
            *self.may_receive.get_mut() = false;
        }
    }

    /// Reads like [`recv`]. If a descriptor arrives, the thread of [`deferred_close`] closes it,
    /// and the connection is shut down.
    ///
    /// # Errors
    /// As for [`recv`]. `ConnectionAborted` if the peer passed a descriptor.
    #[inline]
    pub fn recv(&self, buffer: &mut [u8], wait: WaitMode) -> io::Result<usize> {
        if self.may_receive.load(Ordering::Relaxed) {
            return self.recv_filtered(buffer, wait);
        }
        recv(self.as_fd(), buffer, wait)
    }

    #[cold]
    fn recv_filtered(&self, buffer: &mut [u8], wait: WaitMode) -> io::Result<usize> {
        let outcome = recv_without_descriptors(self.as_fd(), buffer, wait);
        if self.is_refusing && outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            // All bytes from before the refusal have been read, so no descriptor can arrive any
            // more.
            self.may_receive.store(false, Ordering::Relaxed);
        }
        outcome
    }
}

impl AsFd for DescriptorFilterSocket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for DescriptorFilterSocket {
    fn drop(&mut self) {
        // SAFETY: `fd` is taken only here, and not used afterwards.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        // In a forked child the parent also has the socket, so a close of the child's copy closes
        // no descriptor in the queue.
        if *self.may_receive.get_mut() && process::fork_generation() == self.forks {
            let _ = shutdown(fd.as_fd(), ShutdownDirection::Both);
            if unread_bytes(fd.as_fd()).is_ok_and(|octets| octets > 0) {
                deferred_close::close_with_queued_descriptors(fd);
            }
        }
    }
}

/// A listening stream socket whose connections accept no descriptors from their peers.
#[derive(Debug)]
pub struct DescriptorFilterListener {
    fd: ManuallyDrop<OwnedFd>,
    may_receive: bool,
    forks: u64,
}

impl DescriptorFilterListener {
    /// Wraps a listener to whose waiting connections no descriptor can be passed.
    pub fn without_descriptor_passing(fd: OwnedFd) -> Self {
        DescriptorFilterListener { fd: ManuallyDrop::new(fd), may_receive: false, forks: 0 }
    }

    /// Wraps a Unix listener to whose waiting connections descriptors can be passed.
    pub fn for_unix_listener(fd: OwnedFd) -> Self {
        DescriptorFilterListener { fd: ManuallyDrop::new(fd), may_receive: true, forks: process::fork_generation() }
    }

    /// Accepts one connection, like [`accept`] with [`WaitMode::Now`].
    ///
    /// # Errors
    /// As for [`accept`].
    pub fn accept(&self) -> io::Result<(DescriptorFilterSocket, super::Address)> {
        let (fd, address) = accept(self.as_fd(), WaitMode::Now)?;
        Ok((
            if self.may_receive {
                DescriptorFilterSocket::for_unix_socket(fd)
            } else {
                DescriptorFilterSocket::without_descriptor_passing(fd)
            },
            address,
        ))
    }
}

impl AsFd for DescriptorFilterListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for DescriptorFilterListener {
    fn drop(&mut self) {
        if self.may_receive && process::fork_generation() == self.forks {
            let _ = shutdown(self.as_fd(), ShutdownDirection::Both);
            loop {
                match self.accept() {
                    Ok(waiting) => drop(waiting),
                    Err(error) if process::is_out_of_descriptors(&error) => {
                        // SAFETY: no other code takes the descriptor, and it is not used
                        // afterwards.
                        return deferred_close::close(unsafe { ManuallyDrop::take(&mut self.fd) });
                    }
                    Err(_) => break,
                }
            }
        }
        // SAFETY: no other code takes the descriptor, and it is not used afterwards.
        drop(unsafe { ManuallyDrop::take(&mut self.fd) });
    }
}
