//! Receiver and sender with their link.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::lock::{LockScope, Mutex};

use super::ceiling::{BulkRun, CeilingSide};
use super::guarantees::{self, GuaranteeRun, settled};
use super::link;
use super::processor::{IdleTime, Work};
use super::receiver::{BULK, REFUSED, object_stream};
use super::shared::failed;
use super::variant::ReceiveVariant;
use crate::Failure;
use crate::launch::start_in_namespace;
use crate::placement::{CoreChoice, Placement};
use crate::service::RunningProgram;

const PATIENCE: Duration = Duration::from_secs(20);
const TURN: Duration = Duration::from_secs(600);
/// Maximum number of bytes in a frame of the link, without the Ethernet header.
const MAX_FRAME: u64 = 1_500;
/// Time after the start of the bulk load in which TCP reaches its rate.
const RAMP: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BulkRate {
    pub(super) bytes: u64,
    pub(super) time: Duration,
}

impl BulkRate {
    pub(super) fn add(&mut self, other: BulkRate) {
        self.bytes += other.bytes;
        self.time += other.time;
    }

    pub(super) fn megabytes_per_second(self) -> f64 {
        self.bytes as f64 / 1e6 / self.time.as_secs_f64().max(1e-9)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// Messages over a socket, which the receiver sends back.
    Echo,
    /// CORBA calls of an object in a lane.
    Object,
}

/// The results of a turn of calls. Times are in nanoseconds.
pub(super) struct MeasuredCalls {
    pub(super) times: Vec<u64>,
    /// The times from the start of each counted call until the server's thread had the request;
    /// empty for CORBA calls.
    pub(super) requests: Vec<u64>,
    /// The bulk load that arrived during the calls.
    pub(super) bulk: BulkRate,
}

/// Receiver and sender with their link. Clones share the processes.
#[derive(Clone)]
pub(super) struct RioTestbed {
    processes: Arc<Mutex<Processes>>,
    ports: BTreeMap<String, u16>,
    objects: BTreeMap<String, String>,
    refusal: Option<String>,
    /// Streams that are not steered as they should be: the name of each, and the reason.
    lacks: BTreeMap<String, String>,
    pub(super) sender_pid: u32,
    pub(super) receiver_pid: u32,
    pub(super) sender_core: usize,
    pub(super) receiver_core: usize,
}

struct Processes {
    receiver: RunningProgram,
    sender: RunningProgram,
}

impl Processes {
    /// Sends bulk load for the time `length`. Calls `lift` before the connection ends, so that no
    /// frame of the connection's end is dropped. `lift` lifts the ceiling, if there is one, and
    /// returns the number of dropped frames.
    fn send_bulk(
        &mut self,
        port: u16,
        length: Duration,
        lift: impl FnOnce(&mut Self) -> Result<u64, Failure>,
    ) -> Result<BulkRun, Failure> {
        let sent = self.send_for(port, length);
        // After an error too, because later runs have no ceiling.
        let lifted = lift(self);
        let quieted = self.sender.ask("quiet", PATIENCE);
        let judged = sent?;
        quieted?;
        Ok(BulkRun { bytes: measured(&mut self.receiver, BULK)?, judged, dropped: lifted? })
    }

    /// Begins to send bulk load and to measure it, and waits for the time `length`. Returns the
    /// milliseconds to judge.
    fn send_for(&mut self, port: u16, length: Duration) -> Result<Range<usize>, Failure> {
        self.receiver.ask("measure", PATIENCE)?;
        let began = clock::now();
        self.sender.ask(&format!("send {port} 0 0"), PATIENCE)?;
        let first = began.elapsed();
        std::thread::sleep(length);
        Ok(settled(first, began.elapsed()))
    }
}

impl RioTestbed {
    pub(super) fn start(sender_core: usize, receiver_core: usize) -> Result<Self, Failure> {
        let linked = start_linked(sender_core, receiver_core);
        let (mut receiver, mut sender) =
            linked.map_err(|failure| Failure::new(format!("the link cannot be made: {failure}")))?;
        let (receiver_pid, sender_pid) = (receiver.pid(), sender.pid());
        let listening = receiver.ask("listen", PATIENCE)?;
        let (mut ports, mut refusal) = (BTreeMap::new(), None);
        for (name, value) in listening.split(' ').filter_map(|word| word.split_once(':')) {
            if name == REFUSED {
                refusal = Some(value.replace('~', " "));
            } else {
                ports.insert(name.to_owned(), value.parse().map_err(failed)?);
            }
        }
        for port in ReceiveVariant::ALL.iter().filter_map(|variant| ports.get(variant.word())) {
            // The first call waits until the stream has accepted the connection, so it is made
            // before the measurements.
            sender.ask(&format!("echo {port} 0 1 0"), PATIENCE)?;
        }
        let answer = receiver.ask("objects", PATIENCE)?;
        let pairs = answer.split(' ').filter_map(|word| word.split_once('='));
        let mut objects: BTreeMap<_, _> = pairs.map(|(word, object)| (word.to_owned(), object.to_owned())).collect();
        for object in objects.values() {
            sender.ask(&format!("call {object} 0 1 0"), PATIENCE)?;
        }
        let lacks = lacks(&receiver.ask("lacks", PATIENCE)?);
        ports.retain(|name, _| !lacks.contains_key(name));
        objects.retain(|word, _| !lacks.contains_key(&format!("object-{word}")));
        let processes = Processes { receiver, sender };
        let processes = Arc::new(Mutex::new("processes of a benchmark", LockScope::Orb, processes));
        Ok(Self { processes, ports, objects, refusal, lacks, sender_pid, receiver_pid, sender_core, receiver_core })
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    pub(super) fn lacks(&self) -> &BTreeMap<String, String> {
        &self.lacks
    }

    pub(super) fn has_guarantees(&self, variant: ReceiveVariant) -> bool {
        guarantees::STREAMS.iter().all(|stream| self.ports.contains_key(&stream.port(variant)))
    }

    /// Returns the variants of echo calls, the baseline first.
    pub(super) fn variants(&self) -> Vec<ReceiveVariant> {
        self.variants_with(Calls::Echo)
    }

    /// Returns the variants that can make `calls`, the baseline first.
    pub(super) fn variants_with(&self, calls: Calls) -> Vec<ReceiveVariant> {
        let has = |variant: &ReceiveVariant| match calls {
            Calls::Echo => self.ports.contains_key(variant.word()),
            Calls::Object => self.objects.contains_key(variant.word()),
        };
        ReceiveVariant::ALL.into_iter().filter(has).collect()
    }

    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "\nrio: sender on core {}, receiver on core {}; veth pair between two network namespaces; frames up to 1,500 \
             bytes, one segment each, which the sender's kernel cuts from up to {} segments; checksums computed by the \
             sender's stack; received segments are merged; each side receives in a SCHED_FIFO thread on its core",
            self.sender_core,
            self.receiver_core,
            link::MAX_SEGMENTS_AT_ONCE
        );
        text
    }

    fn port(&self, name: &str) -> Result<u16, Failure> {
        self.ports.get(name).copied().ok_or_else(|| Failure::new(format!("the receiver has no port for {name}")))
    }

    fn calls(&self, variant: ReceiveVariant, calls: Calls, warm_up: usize, count: usize) -> Result<String, Failure> {
        let priority = variant.priority().unwrap_or(0);
        match calls {
            Calls::Echo => Ok(format!("echo {} {priority} {warm_up} {count}", self.port(variant.word())?)),
            Calls::Object => {
                let object = self.objects.get(variant.word()).ok_or_else(|| Failure::new("there is no lane"))?;
                Ok(format!("call {object} {priority} {warm_up} {count}"))
            }
        }
    }

    /// Makes the calls of a variant, beside bulk load if there is a `bulk_rate`: the maximum in
    /// bytes per second, or 0 for no maximum.
    pub(super) fn call(
        &self,
        (variant, calls): (ReceiveVariant, Calls),
        bulk_rate: Option<u32>,
        warm_up: usize,
        count: usize,
    ) -> Result<MeasuredCalls, Failure> {
        let (line, bulk) = (self.calls(variant, calls, warm_up, count)?, self.port(BULK)?);
        let mut processes = self.processes.lock();
        let Processes { receiver, sender } = &mut *processes;
        receiver.ask(&format!("enter {}", variant.word()), PATIENCE)?;
        let name = match calls {
            Calls::Echo => variant.word().to_owned(),
            Calls::Object => object_stream(variant),
        };
        let steered = SteeredTurn::begin(receiver, variant, name)?;
        let (times_of_calls, bulk) = match bulk_rate {
            None => (times(&sender.ask(&line, TURN)?)?, BulkRate::default()),
            Some(bulk_rate) => {
                sender.ask(&format!("send {bulk} 0 {bulk_rate}"), PATIENCE)?;
                std::thread::sleep(RAMP);
                let measured = call_beside_bulk(receiver, sender, &line);
                sender.ask("quiet", PATIENCE)?;
                measured?
            }
        };
        let requests = match calls {
            Calls::Echo => times(&sender.ask("requests", PATIENCE)?)?,
            Calls::Object => Vec::new(),
        };
        steered.end(receiver, (warm_up + count) as u64)?;
        Ok(MeasuredCalls { times: times_of_calls, requests, bulk })
    }

    pub(super) fn steered_frames(&self, variant: ReceiveVariant) -> Result<(u64, u64), Failure> {
        frames(&mut self.processes.lock().receiver, variant.word())
    }

    /// Starts best effort, and then one stream after another at intervals of `step`. Ends all of
    /// them after they have run together for the time `hold`. Returns the bytes that arrived in
    /// each millisecond.
    pub(super) fn guarantees(
        &self,
        variant: ReceiveVariant,
        step: Duration,
        hold: Duration,
    ) -> Result<GuaranteeRun, Failure> {
        let names = guarantees::STREAMS.map(|stream| stream.port(variant));
        let ports = names.iter().map(|name| self.port(name)).collect::<Result<Vec<_>, _>>()?;
        let bulk = self.port(BULK)?;
        let mut processes = self.processes.lock();
        let Processes { receiver, sender } = &mut *processes;
        receiver.ask(&format!("enter {}", variant.word()), PATIENCE)?;
        let steered = names.iter().map(|name| SteeredTurn::begin(receiver, variant, name.clone()));
        let steered = steered.collect::<Result<Vec<_>, _>>()?;
        receiver.ask("measure", PATIENCE)?;
        let began = clock::now();
        let mut begin = |port: u16, priority: u8| {
            let began = began.elapsed();
            sender.ask(&format!("send {port} {priority} 0"), PATIENCE)?;
            std::thread::sleep(step);
            Ok::<_, Failure>(began)
        };
        let first = begin(bulk, 0)?;
        let alone = settled(first, began.elapsed());
        let mut last = first;
        for port in ports {
            last = begin(port, guarantees::SENDER_PRIORITY)?;
        }
        std::thread::sleep(hold.saturating_sub(step));
        let together = settled(last, began.elapsed());
        sender.ask("quiet", PATIENCE)?;
        let best_effort = measured(receiver, BULK)?;
        let streams = names.iter().map(|name| measured(receiver, name)).collect::<Result<Vec<Vec<u64>>, _>>()?;
        for (steered, bytes) in steered.into_iter().zip(&streams) {
            // Half of the frames suffice, because the first frames arrive before the stream has
            // accepted the connection.
            let frames = bytes.iter().sum::<u64>() / MAX_FRAME / 2;
            steered.end(receiver, frames)?;
        }
        Ok(GuaranteeRun { best_effort, streams, alone, together })
    }

    /// Sends bulk load without a ceiling, with the steering program on the interface.
    pub(super) fn bulk_alone(&self, length: Duration) -> Result<BulkRun, Failure> {
        let bulk = self.port(BULK)?;
        let mut processes = self.processes.lock();
        let variant = if self.refusal.is_none() { ReceiveVariant::Steered } else { ReceiveVariant::Kernel };
        processes.receiver.ask(&format!("enter {}", variant.word()), PATIENCE)?;
        processes.send_bulk(bulk, length, |_| Ok(0))
    }

    /// Sends bulk load below a ceiling in bytes of frames per second.
    pub(super) fn bulk_below_ceiling(
        &self,
        side: CeilingSide,
        ceiling: u64,
        length: Duration,
    ) -> Result<BulkRun, Failure> {
        let bulk = self.port(BULK)?;
        let mut processes = self.processes.lock();
        let limit = format!("limit {ceiling}");
        match side {
            CeilingSide::Received => {
                processes.receiver.ask(&limit, PATIENCE)?;
                processes.send_bulk(bulk, length, |Processes { receiver, .. }| {
                    let dropped = receiver.ask("dropped", PATIENCE);
                    receiver.ask(&format!("enter {}", ReceiveVariant::Steered.word()), PATIENCE)?;
                    dropped?.parse().map_err(failed)
                })
            }
            CeilingSide::Sent => {
                processes.sender.ask(&limit, PATIENCE)?;
                processes.send_bulk(bulk, length, |Processes { sender, .. }| {
                    sender.ask("limit 0", PATIENCE)?;
                    Ok(0)
                })
            }
        }
    }

    /// Sends bulk load for three times `step`, with calls of the variant during the second `step`.
    /// Returns the bytes that arrived in each millisecond, and the time at the end.
    pub(super) fn bulk_beside_calls(
        &self,
        variant: ReceiveVariant,
        step: Duration,
    ) -> Result<(Vec<u64>, Duration), Failure> {
        const CALLS_AT_ONCE: usize = 100;
        let (line, bulk) = (self.calls(variant, Calls::Echo, CALLS_AT_ONCE, 0)?, self.port(BULK)?);
        let mut processes = self.processes.lock();
        let Processes { receiver, sender } = &mut *processes;
        receiver.ask(&format!("enter {}", variant.word()), PATIENCE)?;
        let steered = SteeredTurn::begin(receiver, variant, variant.word().to_owned())?;
        receiver.ask("measure", PATIENCE)?;
        let (began, mut calls) = (clock::now(), 0);
        sender.ask(&format!("send {bulk} 0 0"), PATIENCE)?;
        std::thread::sleep(step);
        while began.elapsed() < 2 * step {
            sender.ask(&line, TURN)?;
            calls += CALLS_AT_ONCE as u64;
        }
        std::thread::sleep(step);
        let end = began.elapsed();
        sender.ask("quiet", PATIENCE)?;
        steered.end(receiver, calls)?;
        Ok((measured(receiver, BULK)?, end))
    }

    pub(super) fn work_of_calls(&self, variant: ReceiveVariant, count: usize) -> Result<Work, Failure> {
        let line = self.calls(variant, Calls::Echo, count, 0)?;
        let mut processes = self.processes.lock();
        let Processes { receiver, sender } = &mut *processes;
        receiver.ask(&format!("enter {}", variant.word()), PATIENCE)?;
        let steered = SteeredTurn::begin(receiver, variant, variant.word().to_owned())?;
        let (before, began) = (IdleTime::of(self.receiver_core)?, clock::now());
        sender.ask(&line, TURN)?;
        let time = IdleTime::of(self.receiver_core)?.work_since(before, began.elapsed());
        steered.end(receiver, count as u64)?;
        Ok(Work { time, amount: count as f64, turns: 1 })
    }

    pub(super) fn work_of_bulk(&self, variant: ReceiveVariant, length: Duration) -> Result<Work, Failure> {
        let bulk = self.port(BULK)?;
        let mut processes = self.processes.lock();
        let Processes { receiver, sender } = &mut *processes;
        receiver.ask(&format!("enter {}", variant.word()), PATIENCE)?;
        let steered = SteeredTurn::begin(receiver, variant, variant.word().to_owned())?;
        sender.ask(&format!("send {bulk} 0 0"), PATIENCE)?;
        std::thread::sleep(RAMP);
        let (idle, bytes, began) = (IdleTime::of(self.receiver_core)?, received(receiver)?, clock::now());
        std::thread::sleep(length);
        let bytes = received(receiver)?.saturating_sub(bytes);
        let time = IdleTime::of(self.receiver_core)?.work_since(idle, began.elapsed());
        sender.ask("quiet", PATIENCE)?;
        steered.end(receiver, 0)?;
        Ok(Work { time, amount: bytes as f64 / 1e6, turns: 1 })
    }
}

fn start_linked(sender_core: usize, receiver_core: usize) -> Result<(RunningProgram, RunningProgram), Failure> {
    let start = |side: &str, core: usize| {
        let placement = Placement { cores: CoreChoice::Shared(core), scheduling: None };
        start_in_namespace(&format!("the {side}"), &[&format!("rio-{side}"), &core.to_string()], &placement)
    };
    let mut receiver = start("receiver", receiver_core)?;
    let mut sender = start("sender", sender_core)?;
    receiver.ask(&format!("link {}", sender.pid()), PATIENCE)?;
    sender.ask(&format!("configure {}", link::interfaces(receiver.pid()).1), PATIENCE)?;
    receiver.ask("receive", PATIENCE)?;
    sender.ask("receive", PATIENCE)?;
    Ok((receiver, sender))
}

/// The numbers of frames of a steered stream at the start of a turn; `None` if the variant does not
/// steer.
struct SteeredTurn(Option<(String, (u64, u64))>);

impl SteeredTurn {
    fn begin(receiver: &mut RunningProgram, variant: ReceiveVariant, stream: String) -> Result<Self, Failure> {
        if !variant.steers() {
            return Ok(Self(None));
        }
        let before = frames(receiver, &stream)?;
        Ok(Self(Some((stream, before))))
    }

    /// Checks the frames of the turn.
    ///
    /// # Errors
    /// Frames of the turn missed the thread of their stream, or fewer than `least` frames were
    /// queued for it, so that the times are not those of steering.
    fn end(self, receiver: &mut RunningProgram, least: u64) -> Result<(), Failure> {
        let Some((stream, before)) = self.0 else { return Ok(()) };
        let after = frames(receiver, &stream)?;
        frames_of_turn(before, after, least).map_err(|lack| Failure::new(format!("{stream}: {lack}")))
    }
}

fn frames_of_turn(before: (u64, u64), after: (u64, u64), least: u64) -> Result<(), String> {
    let (queued, missed) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    match (queued, missed) {
        (_, 1..) => Err(format!("{missed} frames did not take the path of their stream")),
        (queued, _) if queued < least => {
            Err(format!("only {queued} frames took the path of their stream, at least {least} were expected"))
        }
        _ => Ok(()),
    }
}

fn frames(receiver: &mut RunningProgram, stream: &str) -> Result<(u64, u64), Failure> {
    match times(&receiver.ask(&format!("frames {stream}"), PATIENCE)?)?[..] {
        [queued, missed] => Ok((queued, missed)),
        _ => Err(Failure::new("the receiver does not report its frames")),
    }
}

fn lacks(answer: &str) -> BTreeMap<String, String> {
    let pairs = answer.split(' ').filter_map(|word| word.split_once(':'));
    pairs.map(|(name, reason)| (name.to_owned(), reason.replace('~', " "))).collect()
}

fn received(receiver: &mut RunningProgram) -> Result<u64, Failure> {
    receiver.ask("received", PATIENCE)?.parse().map_err(failed)
}

fn measured(receiver: &mut RunningProgram, name: &str) -> Result<Vec<u64>, Failure> {
    times(&receiver.ask(&format!("measured {name}"), PATIENCE)?)
}

fn call_beside_bulk(
    receiver: &mut RunningProgram,
    sender: &mut RunningProgram,
    line: &str,
) -> Result<(Vec<u64>, BulkRate), Failure> {
    let (before, began) = (received(receiver)?, clock::now());
    let answer = sender.ask(line, TURN)?;
    let bulk = BulkRate { bytes: received(receiver)?.saturating_sub(before), time: began.elapsed() };
    Ok((times(&answer)?, bulk))
}

fn times(answer: &str) -> Result<Vec<u64>, Failure> {
    answer.split_whitespace().map(|word| word.parse().map_err(failed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_turn_must_take_the_path_of_their_stream() {
        assert_eq!(frames_of_turn((10, 3), (30, 3), 20), Ok(()));
        assert!(frames_of_turn((10, 3), (29, 3), 20).unwrap_err().starts_with("only 19 "));
        assert!(frames_of_turn((10, 3), (30, 4), 20).unwrap_err().starts_with("1 frames "));
    }

    #[test]
    fn lacks_have_the_names_of_streams() {
        let found = lacks("steered:there~is~no~stream object-steered:a:b");
        let expected = [("steered", "there is no stream"), ("object-steered", "a:b")];
        assert_eq!(found, expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())).into());
        assert!(lacks("").is_empty());
    }
}
