//! Groups of client threads that start together and call independently.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use corelane_sys::clock::{self, Monotonic};
use corelane_sys::thread::{JoinHandle, ThreadBuilder};

use crate::Failure;
use crate::harness::MeasuredSubject;
use crate::sample::Samples;

pub(crate) trait GroupClient: Send + 'static {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure>;
}

/// Clients that call at the same time, measured as one subject. The total time is from the first
/// client's start to the last client's end. Each client reads the clock itself, because the kernel
/// may run an observing thread long after the start.
pub(crate) struct ClientGroup<M> {
    members: Vec<M>,
    server: u32,
}

impl<M: GroupClient> ClientGroup<M> {
    pub(crate) fn new(members: Vec<M>, server: u32) -> Self {
        ClientGroup { members, server }
    }
}

struct ClientResult<M> {
    member: M,
    samples: Samples,
    outcome: Result<(), Failure>,
    began: Monotonic,
    ended: Monotonic,
}

impl<M: GroupClient> MeasuredSubject for ClientGroup<M> {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let members = std::mem::take(&mut self.members);
        let many = members.len().max(1);
        let barrier = Arc::new(Barrier::new(members.len()));
        let mut threads: Vec<JoinHandle<ClientResult<M>>> = Vec::with_capacity(many);
        for (number, mut member) in members.into_iter().enumerate() {
            let own = count / many + usize::from(number < count % many);
            let barrier = barrier.clone();
            let builder = ThreadBuilder::new().name(format!("client/{number}")).stack_size(256 * 1024);
            // The thread inherits the cores and the scheduling class of the calling thread.
            let thread = builder.spawn(move || {
                let mut samples = Samples::with_capacity(own);
                let warm = member.calls(warm_up.div_ceil(many), &mut Samples::with_capacity(warm_up));
                barrier.wait();
                let began = clock::now();
                let outcome = warm.and_then(|()| member.calls(own, &mut samples));
                ClientResult { member, samples, outcome, began, ended: clock::now() }
            });
            threads.push(thread.map_err(|error| Failure::new(format!("client thread {number}: {error}")))?);
        }
        let mut outcome = Ok(());
        let (mut first, mut last) = (Monotonic::FAR_FUTURE, Monotonic::from_nanos(0));
        for thread in threads {
            let back = thread.join().map_err(|_| Failure::new("a client thread panicked"))?;
            self.members.push(back.member);
            back.samples.skip_first(0).iter().for_each(|&time| into.push(time));
            outcome = outcome.and(back.outcome);
            (first, last) = (first.min(back.began), last.max(back.ended));
        }
        outcome.map(|()| last.since(first))
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting {
        made: usize,
        fails: bool,
    }

    impl GroupClient for Counting {
        fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
            self.made += count;
            let until = clock::now() + Duration::from_nanos(5 * count as u64);
            while !until.is_past() {}
            (0..count).for_each(|_| into.push(5));
            if self.fails { Err(Failure::new("refused")) } else { Ok(()) }
        }
    }

    #[test]
    fn calls_are_divided_among_all_clients() {
        let members = (0..3).map(|_| Counting { made: 0, fails: false }).collect();
        let mut crowd = ClientGroup::new(members, 1);
        for turn in 1..=2 {
            let mut samples = Samples::with_capacity(10);
            let whole = crowd.run(0, 10, &mut samples).unwrap();
            assert!(whole >= Duration::from_nanos(15), "the total time covers the longest client");
            assert_eq!((samples.len(), crowd.members.len()), (10, 3));
            assert_eq!(crowd.members.iter().map(|member| member.made).sum::<usize>(), 10 * turn);
        }
        crowd.members[1].fails = true;
        assert!(crowd.run(0, 10, &mut Samples::with_capacity(10)).is_err());
    }
}
