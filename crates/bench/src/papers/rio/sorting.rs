//! The cost of sorting a frame: runs of the steering program on frames of one connection, by the
//! number of streams and of connections in its tables.

use std::net::{Ipv4Addr, SocketAddr};

use corelane_rio::frame::ConnectionKey;
use corelane_rio::steering::{
    Delivery, LoadedSteeringProgram, PortRule, SteeringError, StreamDelivery, StreamId, TableSizes,
};
use corelane_sys::{bpf, process};

use super::{BENCH, CORELANE, at, failed, label};
use crate::Failure;
use crate::harness::Progress;
use crate::options::BenchOptions;
use crate::report::Report;
use crate::targets::rio as goals;
use crate::value::SingleValue;

/// Numbers of streams, without best effort, and of connections in the tables.
const SIZES: [(u16, u32); 5] = [(1, 1), (32, 1_000), (1_024, 1_000), (1_024, 10_000), (1_024, 100_000)];
/// Descriptors of the maps of 1,024 streams.
const DESCRIPTORS: u64 = 4_096;
/// Local port of the frames.
const PORT: u16 = 5_000;
/// Number of connections whose frames are sorted, spread over the table.
const MEASURED: u32 = 16;
/// Queue of the kernel thread of the measured stream. Frames of test runs do not reach it.
const QUEUE_FRAMES: u32 = 64;

/// Measures the sorting.
pub(super) fn sorting(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    if let Some(reason) = bpf::unavailable_reason() {
        return report.add_missing(BENCH, "Corelane, sorting", &format!("not permitted: {reason}"));
    }
    // Without the descriptors the program cannot be loaded, and the error says so.
    let _ = process::raise_descriptor_limit(DESCRIPTORS);
    let repeat = u32::try_from(options.run_length.count.saturating_mul(100)).unwrap_or(u32::MAX).clamp(100, 5_000_000);
    let mut nanoseconds = Vec::new();
    for (streams, connections) in SIZES {
        progress.show(&format!("{BENCH}: sorting, {streams} streams, {connections} connections"));
        nanoseconds.push(measure(streams, connections, repeat)?);
    }
    report.add_values(&format!("{BENCH}: sorting of a frame"), &judged(&nanoseconds))?;
    let points = SIZES.iter().zip(&nanoseconds).map(|(&(streams, connections), &time)| {
        let place = label(CORELANE, "sorting", &format!("{streams} streams"));
        SingleValue {
            label: at(place, &format!("{streams} streams"), "connections", connections.into()),
            quantity: "time".to_owned(),
            value: time,
            unit: "ns",
            bound: None,
        }
    });
    report.add_json_values(&format!("{BENCH}: sorting by the sizes of the tables"), &points.collect::<Vec<_>>())
}

/// Returns the time in nanoseconds in which the program sorts a frame, the mean over the measured
/// connections.
fn measure(streams: u16, connections: u32, repeat: u32) -> Result<f64, Failure> {
    let stream = StreamId(streams);
    let program = filled(stream, connections).map_err(failed)?;
    let measured = MEASURED.min(connections);
    let mut sum = 0.0;
    for number in 0..measured {
        let frame = frame(remote(number * (connections / measured)));
        let run = || program.program().test_run(&frame, repeat / measured).map_err(failed);
        // The first run warms the caches.
        run()?;
        sum += f64::from(run()?.mean_nanos);
    }
    if program.counts(stream).map_err(failed)?.queued == 0 {
        return Err(Failure::new("the steering program does not recognize the frames"));
    }
    Ok(sum / f64::from(measured))
}

/// Loads the program with full tables. All connections belong to the last stream.
fn filled(stream: StreamId, connections: u32) -> Result<LoadedSteeringProgram, SteeringError> {
    let sizes = TableSizes { streams: stream.0 + 1, queues: 1, max_connections: connections };
    let program = LoadedSteeringProgram::load(sizes)?;
    program.start_thread(stream, 0, QUEUE_FRAMES)?;
    program.set_processor(stream, 0, 0)?;
    program.set_stream(stream, StreamDelivery { delivery: Delivery::Thread, in_context_cap: None })?;
    program.set_port(PORT, Some(PortRule::ServerPort))?;
    for number in 0..connections {
        if let Some(key) = ConnectionKey::new(remote(number), LOCAL) {
            program.add_connection(key, stream)?;
        }
    }
    Ok(program)
}

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), PORT);

/// Returns the remote end of a connection.
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

/// Returns the longest time, and the growth from the smallest to the largest tables.
fn judged(nanoseconds: &[f64]) -> Vec<SingleValue> {
    let value = |quantity: &str, value, unit, bound| SingleValue {
        label: label(CORELANE, "sorting", "stream steering"),
        quantity: quantity.to_owned(),
        value,
        unit,
        bound: Some(bound),
    };
    let longest = nanoseconds.iter().copied().fold(0.0, f64::max);
    let shortest = nanoseconds.iter().copied().fold(f64::INFINITY, f64::min);
    if longest <= 0.0 || shortest <= 0.0 {
        return Vec::new();
    }
    vec![
        value("longest", longest, "ns", goals::MAX_SORTING_NS),
        value("longest, against the shortest", longest / shortest, "x", goals::MAX_SORTING_GROWTH),
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
        let values: Vec<_> = judged(&[50.0, 40.0, 44.0]).iter().map(|value| (value.value, value.bound)).collect();
        assert_eq!(values, [(50.0, Some(goals::MAX_SORTING_NS)), (1.25, Some(goals::MAX_SORTING_GROWTH))]);
        assert!(judged(&[]).is_empty());
    }
}
