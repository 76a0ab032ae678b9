//! Measurement of the processor time that the kernel needs for the packets of a stream.

use std::io;
use std::time::Duration;

use corelane_net::{Endpoint, Stream, TcpTransport, Transport, WaitLimit};
use corelane_sched::task::Nanos;
use corelane_sys::clock::Monotonic;
use corelane_sys::thread::{self, CpuSet, Scheduling, ThreadBuilder};
use corelane_sys::{poll, usage};

use crate::admission::ProcessingCost;

/// Number of packets that are measured together. TCP sends them without waiting for an
/// acknowledgement, even at the beginning of a connection (RFC 6928 permits ten).
const BATCH: u32 = 8;
const BATCHES: usize = 400;
const SLEEPS: usize = 100;
/// Payload in bytes of the packets whose time is [`ProcessingCost::per_packet`].
const SHORT: usize = 16;
/// Payload in bytes of the longer packets. The additional time of a longer packet is the cost of
/// its additional bytes.
const LONG: usize = 1_040;
/// Time for which the thread sleeps while [`ProcessingCost::per_period`] is measured.
const SLEEP: Duration = Duration::from_micros(200);

impl ProcessingCost {
    /// Measures the cost on one core of this machine, usually in less than a second.
    ///
    /// A thread sends packets to itself over the loopback interface and reads them, so the time of
    /// a packet includes its sending and the system calls. The kernel thread of a stream does less
    /// work for a packet. The result is the time that nine of ten batches of packets do not exceed,
    /// not a worst case: [`with_margin`](Self::with_margin) adds to it.
    ///
    /// # Errors
    /// If the system refuses a thread or a socket.
    pub fn measure() -> io::Result<Self> {
        let core = thread::affinity(None)?.iter().next();
        let builder = ThreadBuilder::new()
            .name("rio/cost")
            .scheduling(Scheduling::Other)
            .preferred_affinity(core.map(CpuSet::one));
        let measured = builder.spawn(measure)?.join();
        measured.map_err(|_| io::Error::other("the measuring thread has failed"))?
    }

    /// Returns the cost with each time increased by `percent` of it.
    #[must_use]
    pub fn with_margin(self, percent: u32) -> Self {
        let more = |time: Nanos| time.saturating_add(time.saturating_mul(percent.into()).div_ceil(100));
        Self {
            per_period: more(self.per_period),
            per_packet: more(self.per_packet),
            per_kibibyte: more(self.per_kibibyte),
        }
    }
}

fn measure() -> io::Result<ProcessingCost> {
    let tcp = TcpTransport::new();
    let listener = tcp.listen(&Endpoint::tcp("127.0.0.1", 0))?;
    let sender = tcp.connect(listener.local_endpoint(), None)?;
    poll::wait_readable(listener.readiness_descriptor(), None)?;
    let receiver = listener.accept()?;
    // The first packets of a connection are slower, so these batches are not counted.
    batches(&*sender, &*receiver, LONG)?;
    let [short, long] = [SHORT, LONG].map(|size| batches(&*sender, &*receiver, size));
    let (short, long) = (short?, long?);
    let between = u64::try_from(LONG - SHORT).unwrap_or(1);
    let per_kibibyte = (long.saturating_sub(short) * 1_024).div_ceil(between).max(1);
    Ok(ProcessingCost { per_period: sleeps().max(1), per_packet: short.max(1), per_kibibyte })
}

/// Returns the time of a packet with a payload of `size` bytes that nine of ten batches do not
/// exceed.
fn batches(sender: &dyn Stream, receiver: &dyn Stream, size: usize) -> io::Result<Nanos> {
    let payload = vec![0; size];
    let mut buffer = vec![0; size * BATCH as usize];
    let mut times = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let began = Monotonic::now();
        for _ in 0..BATCH {
            let mut sent = 0;
            while sent < size {
                sent += sender.send(payload.get(sent..).unwrap_or_default(), WaitLimit::Block)?;
            }
        }
        let mut received = 0;
        while received < buffer.len() {
            received += receiver.recv(buffer.get_mut(received..).unwrap_or_default(), WaitLimit::Block)?;
        }
        times.push(began.elapsed());
    }
    Ok(ninth_of_ten(times) / u64::from(BATCH))
}

/// Returns the processor time of a thread for a wake-up and the next sleep that nine of ten sleeps
/// do not exceed.
fn sleeps() -> Nanos {
    let once = |_| {
        let before = usage::thread_time();
        std::thread::sleep(SLEEP);
        usage::thread_time().saturating_sub(before)
    };
    ninth_of_ten((0..SLEEPS).map(once).collect())
}

fn ninth_of_ten(mut times: Vec<Duration>) -> Nanos {
    times.sort_unstable();
    let time = times.get(times.len() * 9 / 10).copied().unwrap_or_default();
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_cost_is_usable_in_an_analysis() {
        let cost = ProcessingCost::measure().unwrap();
        let second = 1_000_000_000;
        for time in [cost.per_period, cost.per_packet, cost.per_kibibyte] {
            assert!((1..second).contains(&time), "{cost:?}");
        }
    }

    #[test]
    fn margin_is_rounded_up() {
        let cost = ProcessingCost { per_period: 1, per_packet: 100, per_kibibyte: 0 }.with_margin(50);
        assert_eq!(cost, ProcessingCost { per_period: 2, per_packet: 150, per_kibibyte: 0 });
    }

    #[test]
    fn one_of_ten_times_may_be_longer() {
        let times = |range: std::ops::Range<u64>| range.map(Duration::from_nanos).collect();
        assert_eq!(ninth_of_ten(times(0..10)), 9);
        assert_eq!(ninth_of_ten(times(0..100)), 90);
        assert_eq!(ninth_of_ten(Vec::new()), 0);
    }
}
