//! The cost of sorting a frame: test runs of the steering program on frames, by the number of
//! streams and of connections in its tables.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use corelane_rio::frame::ConnectionKey;
use corelane_rio::steering::{
    Delivery, LoadedSteeringProgram, PortRule, SteeringError, StreamDelivery, StreamId, TableSizes,
};
use corelane_sys::{bpf, process};

use super::shared::{BENCH, CORELANE, at, failed, is_trial, judged_unless_trial, label};
use crate::Failure;
use crate::harness::Progress;
use crate::options::BenchOptions;
use crate::report::Report;
use crate::targets::rio as goals;
use crate::value::SingleValue;

/// Numbers of streams, without best effort, for which tables have room. The measured connections
/// belong to the last stream of a table. To load a table takes a grace period of the kernel for
/// each stream, so there are few tables.
const STREAMS: [u16; 3] = [1, 32, 1_024];
/// Numbers of connections in the tables for 1,024 streams. Tables for fewer streams have the first
/// number.
const CONNECTIONS: [u32; 3] = [1_000, 10_000, 100_000];
const ROUNDS: usize = 5;
/// Limit of open descriptors, enough for the maps of 1,024 streams.
const DESCRIPTORS: u64 = 4_096;
const PORT: u16 = 5_000;
/// Number of connections whose frames are sorted, spread over the table.
const MEASURED: u32 = 16;
/// Length, in frames, of the queue of the measured stream's kernel thread. The frames of test runs
/// are not queued.
const QUEUE_FRAMES: u32 = 64;

pub(super) fn sorting(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    if let Some(reason) = bpf::unavailable_reason() {
        return report.add_missing(BENCH, "Corelane, sorting", &format!("not permitted: {reason}"));
    }
    // If the limit cannot be raised, `load` reports that the maps cannot be created.
    let _ = process::raise_descriptor_limit(DESCRIPTORS);
    let repeat = u32::try_from(options.run_length.count.saturating_mul(100)).unwrap_or(u32::MAX).clamp(160, 1_000_000);
    let (streams, connections) = match is_trial(options) {
        true => (&STREAMS[..2], &CONNECTIONS[..1]),
        false => (&STREAMS[..], &CONNECTIONS[..]),
    };
    let mut tables = Vec::new();
    for &stream in streams {
        progress.show(&format!("{BENCH}: sorting, tables for {stream} streams"));
        let connections = if Some(&stream) == streams.last() { connections } else { &connections[..1] };
        tables.push(MeasuredTables::load(stream, connections)?);
    }
    for round in 0..ROUNDS {
        progress.show(&format!("{BENCH}: sorting ({} of {ROUNDS})", round + 1));
        tables.iter_mut().try_for_each(|tables| tables.measure(repeat))?;
    }
    let times: Vec<SortingTime> = tables.iter().flat_map(MeasuredTables::times).collect();
    let values = judged_unless_trial(options, judged(&times));
    report.add_values(&format!("{BENCH}: sorting of a frame"), &values)?;
    let points = times.iter().map(|time| {
        let series = format!("tables for {} streams", time.streams);
        SingleValue {
            label: at(label(CORELANE, "sorting", &series), &series, "connections", time.connections.into()),
            quantity: "time".to_owned(),
            value: time.nanoseconds,
            unit: "ns",
            bound: None,
        }
    });
    report.add_json_values(&format!("{BENCH}: sorting by the sizes of the tables"), &points.collect::<Vec<_>>())
}

struct SortingTime {
    streams: u16,
    connections: u32,
    /// The median of the rounds' means over the measured connections.
    nanoseconds: f64,
}

struct MeasuredTables {
    streams: u16,
    program: LoadedSteeringProgram,
    filled: u32,
    /// Each number of connections, with the mean time of each round in nanoseconds.
    rounds: Vec<(u32, Vec<f64>)>,
}

impl MeasuredTables {
    fn load(streams: u16, connections: &[u32]) -> Result<Self, Failure> {
        let program = load(StreamId(streams), connections.last().copied().unwrap_or(0)).map_err(failed)?;
        let rounds = connections.iter().map(|&connections| (connections, Vec::new())).collect();
        Ok(Self { streams, program, filled: 0, rounds })
    }

    fn measure(&mut self, repeat: u32) -> Result<(), Failure> {
        let stream = StreamId(self.streams);
        for (connections, means) in &mut self.rounds {
            set_connections(&self.program, stream, self.filled, *connections).map_err(failed)?;
            self.filled = *connections;
            let mut sum = 0.0;
            for number in 0..MEASURED {
                let frame = frame(remote(number * (*connections / MEASURED)));
                let run = || self.program.program().test_run(&frame, repeat / MEASURED).map_err(failed);
                run()?;
                sum += f64::from(run()?.mean_nanos);
            }
            means.push(sum / f64::from(MEASURED));
        }
        if self.program.counts(stream).map_err(failed)?.queued_frames == 0 {
            return Err(Failure::new("the steering program does not recognize the frames"));
        }
        Ok(())
    }

    fn times(&self) -> impl Iterator<Item = SortingTime> {
        let time = |(connections, means): &(u32, Vec<f64>)| {
            let (streams, connections) = (self.streams, *connections);
            SortingTime { streams, connections, nanoseconds: median(means) }
        };
        self.rounds.iter().map(time)
    }
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Loads a steering program whose last stream is `stream`. Frames to [`PORT`] belong to this stream
/// if their connections are in the table.
fn load(stream: StreamId, max_connections: u32) -> Result<LoadedSteeringProgram, SteeringError> {
    let program = LoadedSteeringProgram::load(TableSizes {
        stream_count: stream.0 + 1,
        receive_queue_count: 1,
        max_connections,
    })?;
    program.start_thread(stream, 0, QUEUE_FRAMES)?;
    program.set_processor(stream, 0, 0)?;
    program.set_delivery(stream, StreamDelivery { delivery: Delivery::Thread, max_receive_context_rate: None })?;
    program.set_port(PORT, Some(PortRule::ServerPort))?;
    Ok(program)
}

/// Adds or removes connections until the table has `wanted` connections.
fn set_connections(
    program: &LoadedSteeringProgram,
    stream: StreamId,
    filled: u32,
    wanted: u32,
) -> Result<(), SteeringError> {
    let key = |number| ConnectionKey::new(remote(number), LOCAL);
    for key in (filled..wanted).filter_map(key) {
        program.add_connection(key, stream)?;
    }
    for key in (wanted..filled).filter_map(key) {
        program.remove_connection(&key)?;
    }
    Ok(())
}

const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), PORT);

fn remote(number: u32) -> SocketAddr {
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 0, 0).to_bits() + number / 1_000);
    SocketAddr::from((address, 10_000 + u16::try_from(number % 1_000).unwrap_or(0)))
}

/// Returns a frame of 64 bytes of data from `remote` to the local port.
fn frame(remote: SocketAddr) -> Vec<u8> {
    const DATA: u16 = 64;
    const HEADERS: u16 = 20 + 20;
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (remote, LOCAL) else { return Vec::new() };
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    // Version and header length, total length, no fragment, time to live, TCP.
    frame.extend([0x45, 0]);
    frame.extend((HEADERS + DATA).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(from.ip().octets());
    frame.extend(to.ip().octets());
    frame.extend(from.port().to_be_bytes());
    frame.extend(to.port().to_be_bytes());
    // Sequence numbers, header length, acknowledgement, window.
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend([0; DATA as usize]);
    frame
}

/// Returns the sorting time with the slowest size of the tables, and the ratio of this time to the
/// time with the fastest size.
fn judged(times: &[SortingTime]) -> Vec<SingleValue> {
    let value = |quantity: &str, value, unit, bound| SingleValue {
        label: label(CORELANE, "sorting", "stream steering"),
        quantity: quantity.to_owned(),
        value,
        unit,
        bound: Some(bound),
    };
    let nanoseconds = || times.iter().map(|time| time.nanoseconds);
    let (slowest, fastest) = (nanoseconds().fold(0.0, f64::max), nanoseconds().fold(f64::INFINITY, f64::min));
    if slowest <= 0.0 || fastest <= 0.0 {
        return Vec::new();
    }
    vec![
        value("mean of the slowest size", slowest, "ns", goals::MAX_SORTING_NS),
        value("slowest size, against the fastest", slowest / fastest, "x", goals::MAX_SORTING_GROWTH),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_rio::frame::{ParsedFrame, parse};

    #[test]
    fn frames_belong_to_their_connection() {
        for number in [0, 999, 1_000, 99_999] {
            let key = ConnectionKey::new(remote(number), LOCAL).unwrap();
            assert_eq!(parse(&frame(remote(number))), ParsedFrame::Tcp(key));
        }
        assert_ne!(remote(999), remote(1_999));
    }

    #[test]
    fn times_are_compared_with_the_goals() {
        let times = [50.0, 40.0, 44.0].map(|nanoseconds| SortingTime { streams: 1, connections: 1, nanoseconds });
        let values: Vec<_> = judged(&times).iter().map(|value| (value.value, value.bound)).collect();
        assert_eq!(values, [(50.0, Some(goals::MAX_SORTING_NS)), (1.25, Some(goals::MAX_SORTING_GROWTH))]);
        assert!(judged(&[]).is_empty());
        assert_eq!([median(&[3.0, 1.0, 2.0]), median(&[])], [2.0, 0.0]);
    }
}
