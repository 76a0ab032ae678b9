//! The floor of shared memory: messages copied into memory of both processes and out of it, and who waits sleeps on a futex or, where there is a
//! core for it, looks.
//!
//! The two meet at a Unix socket; the sizes go there as on every floor, with the memory's descriptor beside them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::ring::bare::{Bare, Wait};
use corelane_sys::socket::{self, Address, Options};

use super::{Sizes, read_preamble};
use crate::Failure;
use crate::harness::Subject;
use crate::sample::{Samples, timed};

/// How long a side looks before it sleeps.
const LOOK: Duration = Duration::from_micros(50);

/// How both sides wait.
pub(super) fn wait(looking: bool) -> Wait {
    if looking { Wait::Looking(LOOK) } else { Wait::Asleep }
}

/// The client's end, whose server is told of it.
pub(super) fn connect(address: &Address, sizes: Sizes, looking: bool, patience: Duration) -> io::Result<Bare> {
    let socket = socket::connect(address, &Options::default(), Some(clock::now() + patience))?;
    let (bare, memory) = Bare::create(sizes.request, sizes.reply, wait(looking))?;
    socket::send_with_descriptor(socket.as_fd(), &sizes.preamble(), memory.as_fd(), socket::Wait::Block)?;
    Ok(bare)
}

/// The server's end, of a client that says something sensible.
pub(super) fn accept(socket: BorrowedFd<'_>, looking: bool) -> Option<(Bare, Sizes)> {
    let mut preamble = [0; 16];
    let (count, memory): (usize, Option<OwnedFd>) =
        socket::recv_with_descriptor(socket, &mut preamble, socket::Wait::Block).ok()?;
    let sizes = read_preamble(&preamble).filter(|sizes| count == preamble.len() && sizes.reply > 0)?;
    let bare = Bare::open(memory?.as_fd(), sizes.request, sizes.reply, wait(looking)).ok()?;
    Some((bare, sizes))
}

/// A thread's whole work for one connection.
pub(super) fn serve(mut bare: Bare, sizes: Sizes) {
    let (mut request, reply) = (vec![0; sizes.request], vec![0; sizes.reply]);
    while bare.receive(&mut request) {
        bare.send(&reply);
    }
}

/// What no exchange through shared memory can do without, and nothing else: both messages copied in and out, by one thread.
pub(crate) struct Copies {
    pub(super) request: [Vec<u8>; 3],
    pub(super) reply: [Vec<u8>; 3],
}

impl Copies {
    /// Of messages of these sizes.
    #[must_use]
    pub(crate) fn new(sizes: Sizes) -> Self {
        // Written to: memory that was never touched is one page of zeroes.
        let places = |size: usize| [vec![1; size], vec![2; size], vec![3; size]];
        Copies { request: places(sizes.request), reply: places(sizes.reply) }
    }

    #[inline]
    fn once(&mut self) {
        for [from, between, to] in [&mut self.request, &mut self.reply] {
            std::hint::black_box(&mut *between).copy_from_slice(std::hint::black_box(from));
            std::hint::black_box(to).copy_from_slice(std::hint::black_box(between));
        }
    }
}

impl Subject for Copies {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        (0..warm_up).for_each(|_| self.once());
        timed(count, into, || {
            self.once();
            Ok(())
        })
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}
