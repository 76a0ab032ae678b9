//! Baseline for shared memory: messages are copied into and out of memory that both processes map.
//!
//! A waiting side sleeps on a futex, and may spin before it sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::ring::bare::{BareRing, BareRingWait};
use corelane_sys::ring::bare_stream::BareStream;
use corelane_sys::socket::{self, Address, SocketOptions};

use super::{MessageSizes, read_preamble};
use crate::Failure;
use crate::harness::MeasuredSubject;
use crate::sample::{Samples, time_calls};

const LOOK: Duration = Duration::from_micros(50);

pub(super) fn wait(spins: bool) -> BareRingWait {
    if spins { BareRingWait::Spinning(LOOK) } else { BareRingWait::Asleep }
}

pub(super) fn connect(address: &Address, sizes: MessageSizes, spins: bool, patience: Duration) -> io::Result<BareRing> {
    let socket = socket::connect(address, &SocketOptions::default(), Some(clock::now() + patience))?;
    let (bare, memory) = BareRing::create_client_end(sizes.request, sizes.reply, wait(spins))?;
    socket::send_with_descriptor(socket.as_fd(), &sizes.preamble(), memory.as_fd(), socket::WaitMode::Block)?;
    Ok(bare)
}

pub(super) fn accept(socket: BorrowedFd<'_>, spins: bool) -> Option<(BareRing, MessageSizes)> {
    let (memory, sizes) = accept_memory(socket)?;
    let bare = BareRing::open(memory.as_fd(), sizes.request, sizes.reply, wait(spins)).ok()?;
    Some((bare, sizes))
}

fn accept_memory(socket: BorrowedFd<'_>) -> Option<(OwnedFd, MessageSizes)> {
    let mut preamble = [0; 16];
    let (count, memory) = socket::recv_with_descriptor(socket, &mut preamble, socket::WaitMode::Block).ok()?;
    let sizes = read_preamble(&preamble).filter(|sizes| count == preamble.len() && sizes.reply > 0)?;
    Some((memory?, sizes))
}

pub(super) fn serve(mut bare: BareRing, sizes: MessageSizes) {
    let (mut request, reply) = (vec![0; sizes.request], vec![0; sizes.reply]);
    while bare.receive(&mut request) {
        bare.send(&reply);
    }
}

pub(super) fn connect_parts(address: &Address, sizes: MessageSizes, patience: Duration) -> io::Result<BareStream> {
    let socket = socket::connect(address, &SocketOptions::default(), Some(clock::now() + patience))?;
    let (bare, memory) = BareStream::create(wait(true))?;
    socket::send_with_descriptor(socket.as_fd(), &sizes.preamble(), memory.as_fd(), socket::WaitMode::Block)?;
    Ok(bare)
}

pub(super) fn accept_parts(socket: BorrowedFd<'_>) -> Option<(BareStream, MessageSizes)> {
    let (memory, sizes) = accept_memory(socket)?;
    Some((BareStream::open(memory.as_fd(), wait(true)).ok()?, sizes))
}

pub(super) fn serve_parts(mut bare: BareStream, sizes: MessageSizes) {
    let (mut request, reply) = (vec![0; sizes.request], vec![0; sizes.reply]);
    while bare.receive(&mut request) && bare.send(&reply) {}
}

pub(crate) struct MemoryCopies {
    pub(super) request: [Vec<u8>; 3],
    pub(super) reply: [Vec<u8>; 3],
}

impl MemoryCopies {
    #[must_use]
    pub(crate) fn new(sizes: MessageSizes) -> Self {
        // The bytes are not 0, because pages that were never written share one page of zeros, from
        // which copies would be faster.
        let places = |size: usize| [vec![1; size], vec![2; size], vec![3; size]];
        MemoryCopies { request: places(sizes.request), reply: places(sizes.reply) }
    }

    #[inline]
    fn once(&mut self) {
        for [from, between, to] in [&mut self.request, &mut self.reply] {
            std::hint::black_box(&mut *between).copy_from_slice(std::hint::black_box(from));
            std::hint::black_box(to).copy_from_slice(std::hint::black_box(between));
        }
    }
}

impl MeasuredSubject for MemoryCopies {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        (0..warm_up).for_each(|_| self.once());
        time_calls(count, into, || {
            self.once();
            Ok(())
        })
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}
