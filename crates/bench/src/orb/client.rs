//! Corelane's client in the process of the benchmark.

use std::time::Duration;

use corelane::rt::RtOrb;
use corelane::{LendableOctets, ObjectRef, Octets, Orb};
use corelane_sys::clock;

use super::generated::cubit::{CountedTargetRef, Mixed};
use super::servant::length;
use crate::Failure;
use crate::client_group::GroupClient;
use crate::harness::MeasuredSubject;
use crate::operation::MeasuredOperation;
use crate::sample::{Samples, time_calls};

pub(crate) fn object(orb: &Orb, text: &str) -> Result<ObjectRef, Failure> {
    orb.string_to_object(text)?.ok_or_else(|| Failure::new("the server's reference is nil"))
}

pub(crate) struct StubCalls {
    pub(crate) target: CountedTargetRef,
    pub(crate) operation: MeasuredOperation,
    pub(crate) server: u32,
}

impl MeasuredSubject for StubCalls {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let target = &self.target;
        if self.operation.is_oneway() {
            for _ in 0..warm_up {
                target.take_octet(7)?;
            }
            target.echo_nothing()?;
            let began = clock::now();
            time_calls(count, into, || target.take_octet(7))?;
            target.echo_nothing()?;
            return Ok(began.elapsed());
        }
        two_way(target, self.operation, warm_up, &mut Samples::with_capacity(warm_up))?;
        two_way(target, self.operation, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}

pub(crate) fn two_way(
    target: &CountedTargetRef,
    operation: MeasuredOperation,
    count: usize,
    into: &mut Samples,
) -> Result<Duration, Failure> {
    repeated(target, operation, &mut Timed { count, into })
}

/// Makes `count` calls. If the operation's result is compared in full, one more call precedes them.
pub(crate) fn untimed(target: &CountedTargetRef, operation: MeasuredOperation, count: usize) -> Result<(), Failure> {
    if operation.is_oneway() {
        return Untimed { count }.around(|| Ok(target.take_octet(7)?)).map(|_| ());
    }
    repeated(target, operation, &mut Untimed { count }).map(|_| ())
}

trait Repeat {
    fn around(&mut self, call: impl FnMut() -> Result<(), Failure>) -> Result<Duration, Failure>;
}

struct Timed<'a> {
    count: usize,
    into: &'a mut Samples,
}

impl Repeat for Timed<'_> {
    #[inline(always)]
    fn around(&mut self, call: impl FnMut() -> Result<(), Failure>) -> Result<Duration, Failure> {
        time_calls(self.count, self.into, call)
    }
}

struct Untimed {
    count: usize,
}

impl Repeat for Untimed {
    #[inline(always)]
    fn around(&mut self, mut call: impl FnMut() -> Result<(), Failure>) -> Result<Duration, Failure> {
        for _ in 0..self.count {
            call()?;
        }
        Ok(Duration::ZERO)
    }
}

/// Repeats calls of an operation. Each operation has a separate loop, so that no loop branches on
/// the operation.
fn repeated(
    target: &CountedTargetRef,
    operation: MeasuredOperation,
    times: &mut impl Repeat,
) -> Result<Duration, Failure> {
    match operation {
        MeasuredOperation::EmptyCall | MeasuredOperation::Oneway => times.around(|| Ok(target.echo_nothing()?)),
        MeasuredOperation::Octet => times.around(|| expect(target.echo_octet(7)? == 7)),
        MeasuredOperation::Short => times.around(|| expect(target.echo_short(-7)? == -7)),
        MeasuredOperation::Long => times.around(|| expect(target.echo_long(70_000)? == 70_000)),
        MeasuredOperation::Struct => {
            let sent = Mixed { o: 1, l: 2, s: 3 };
            times.around(|| expect(target.echo_struct(&sent)? == sent))
        }
        MeasuredOperation::Longs(length) => {
            let sent: Vec<i32> = (0..length).map(|number| number as i32).collect();
            sequences(&sent, times, || Ok(target.echo_longs(&sent)?))
        }
        MeasuredOperation::Structs(length) => {
            let sent: Vec<Mixed> = (0..length).map(|number| Mixed { o: 1, l: number as i32, s: 3 }).collect();
            sequences(&sent, times, || Ok(target.echo_structs(&sent)?))
        }
        MeasuredOperation::Octets(length) => {
            let sent: Vec<u8> = (0..length).map(|number| number as u8).collect();
            sequences(&sent, times, || Ok(target.echo_octets(&sent)?))
        }
        MeasuredOperation::String(length) => {
            let sent = "x".repeat(length);
            expect(target.echo_string(&sent)? == sent)?;
            times.around(|| expect(target.echo_string(&sent)?.len() == sent.len()))
        }
        MeasuredOperation::TakeLongs(count) => {
            let sent: Vec<i32> = (0..count).map(|number| number as i32).collect();
            times.around(|| expect(target.take_longs(&sent)? == length(count)))
        }
        MeasuredOperation::TakeOctets(count) => {
            let sent: Vec<u8> = (0..count).map(|number| number as u8).collect();
            times.around(|| expect(target.take_octets(&sent)? == length(count)))
        }
        MeasuredOperation::LentOctets(length) => {
            let sent = lendable(length)?;
            sequences(&sent, times, || Ok(target.echo_octets(&sent)?))
        }
        MeasuredOperation::TakeLentOctets(count) => {
            let sent = lendable(count)?;
            times.around(|| expect(target.take_octets(&sent)? == length(count)))
        }
        MeasuredOperation::IntoLongs(length) => {
            let sent: Vec<i32> = (0..length).map(|number| number as i32).collect();
            sequences_into(&sent, 0, times, |memory| Ok(target.echo_longs_into(&sent, memory)?))
        }
        MeasuredOperation::IntoStructs(length) => {
            let sent: Vec<Mixed> = (0..length).map(|number| Mixed { o: 1, l: number as i32, s: 3 }).collect();
            sequences_into(&sent, Mixed::default(), times, |memory| Ok(target.echo_structs_into(&sent, memory)?))
        }
    }
}

/// Returns octets that Corelane lends at least in the last calls. The first calls copy the octets,
/// because they open the channel for lent memory.
fn lendable(length: usize) -> Result<Octets, Failure> {
    let mut octets = LendableOctets::new(length)?;
    octets.iter_mut().zip(0..length).for_each(|(octet, number)| *octet = number as u8);
    Ok(octets.seal()?)
}

/// Makes one more call with a sequence, whose result is compared in full, and then the repeated
/// calls. The results of the repeated calls are compared by length and last element.
#[inline(always)]
fn sequences<T: PartialEq, S: AsRef<[T]>>(
    sent: &[T],
    times: &mut impl Repeat,
    mut echo: impl FnMut() -> Result<S, Failure>,
) -> Result<Duration, Failure> {
    expect(echo()?.as_ref() == sent)?;
    times.around(|| {
        let answer = echo()?;
        let answer = answer.as_ref();
        expect(answer.len() == sent.len() && answer.last() == sent.last())
    })
}

/// Makes calls as [`sequences`] does, but receives all results in the same memory.
#[inline(always)]
fn sequences_into<T: Copy + PartialEq>(
    sent: &[T],
    empty: T,
    times: &mut impl Repeat,
    mut echo: impl FnMut(&mut [T]) -> Result<usize, Failure>,
) -> Result<Duration, Failure> {
    let mut memory = vec![empty; sent.len()];
    expect(echo(&mut memory)? == sent.len() && memory == sent)?;
    times.around(|| expect(echo(&mut memory)? == sent.len() && memory.last() == sent.last()))
}

#[inline]
fn expect(holds: bool) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::new("the reply is not what was sent")) }
}

pub(crate) struct TwoWayCaller {
    pub(crate) target: CountedTargetRef,
    pub(crate) operation: MeasuredOperation,
}

pub(crate) struct PrioritizedCaller {
    pub(crate) caller: TwoWayCaller,
    pub(crate) orb: RtOrb,
    pub(crate) priority: Option<i16>,
}

impl GroupClient for PrioritizedCaller {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        if let Some(priority) = self.priority.take() {
            self.orb.current()?.set_priority(priority)?;
        }
        self.caller.calls(count, into)
    }
}

impl GroupClient for TwoWayCaller {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        two_way(&self.target, self.operation, count, into).map(|_| ())
    }
}

pub(crate) struct ComputingCaller {
    pub(crate) target: CountedTargetRef,
    pub(crate) rounds: u32,
}

impl GroupClient for ComputingCaller {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        time_calls(count, into, || Ok(self.target.work(self.rounds).map(|_| ())?)).map(|_: Duration| ())
    }
}

pub(crate) struct ObjectCycle {
    pub(crate) targets: Vec<CountedTargetRef>,
    pub(crate) next: usize,
    pub(crate) server: u32,
}

impl MeasuredSubject for ObjectCycle {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.turns(warm_up, &mut Samples::with_capacity(warm_up))?;
        self.turns(count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}

impl ObjectCycle {
    fn turns(&mut self, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let (targets, next) = (&self.targets, &mut self.next);
        time_calls(count, into, || {
            let target = &targets[*next];
            *next = if *next + 1 == targets.len() { 0 } else { *next + 1 };
            expect(target.echo_octet(7)? == 7)
        })
    }
}

pub(crate) struct OperationCycle {
    pub(crate) object: ObjectRef,
    pub(crate) operations: Vec<&'static corelane::mapping::Operation<'static>>,
    pub(crate) next: usize,
    pub(crate) server: u32,
}

impl MeasuredSubject for OperationCycle {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.turns(warm_up, &mut Samples::with_capacity(warm_up))?;
        self.turns(count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}

impl OperationCycle {
    fn turns(&mut self, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let (object, operations, next) = (&self.object, &self.operations, &mut self.next);
        time_calls(count, into, || {
            let operation = operations[*next];
            *next = if *next + 1 == operations.len() { 0 } else { *next + 1 };
            object.invoke(operation, &|_| Ok(()))?;
            Ok(())
        })
    }
}

pub(crate) fn target(orb: &Orb, text: &str) -> Result<CountedTargetRef, Failure> {
    Ok(CountedTargetRef::from_object(object(orb, text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_equal_length_with_other_content_is_detected() {
        let sent = [1, 2, 3];
        assert!(sequences(&sent, &mut Untimed { count: 2 }, || Ok(vec![1, 2, 3])).is_ok());
        assert!(sequences(&sent, &mut Untimed { count: 0 }, || Ok(vec![1, 7, 3])).is_err());
        let mut asked = 0;
        let mut samples = Samples::with_capacity(2);
        let later = sequences(&sent, &mut Timed { count: 2, into: &mut samples }, || {
            asked += 1;
            Ok(if asked == 1 { vec![1, 2, 3] } else { vec![1, 2, 4] })
        });
        assert!(later.is_err());
        assert!(sequences(&[0_u8; 0], &mut Untimed { count: 1 }, || Ok(Vec::new())).is_ok());
    }
}
