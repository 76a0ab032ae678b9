//! The ceiling of best effort, over a link between two network namespaces.

use super::packet_tests::{SERVER, accept, config, exchange, listen, over_a_link, prepare_checksums, steering};
use super::tests::{drain, fill};
use super::*;

/// Length in bytes of the longest frame of the link.
const FRAME: u64 = 1_514;

/// Fails if best effort receives more than its ceiling or far less, or if frames of a stream are
/// dropped.
#[test]
fn best_effort_receives_at_most_its_ceiling_and_streams_have_none() {
    const RATE: u64 = 100_000;
    /// More than ten times the bytes that pass at once after a pause.
    const LEAST: usize = 25_000;
    over_a_link(prepare_checksums, |connect| {
        let transport = steering(config().max_best_effort_receive_rate(Some(RATE)));
        transport.attach_orb();
        let io = IoProperties { class: IoClass::Priority, ..IoProperties::default() };
        let (listener, port) = listen(&transport, SERVER, &io);
        let (plain, plain_port) = listen(&transport, SERVER, &IoProperties::default());
        let (client, server) = (connect(SERVER, port), accept(&*listener));
        let (other_client, other_server) = (connect(SERVER, plain_port), accept(&*plain));
        let (begun, mut received) = (Monotonic::now(), 0);
        let dropped = || transport.best_effort_frames().unwrap().dropped_frames;
        while dropped() < 20 || received < LEAST || begun.elapsed() < Duration::from_millis(300) {
            fill(&*other_client);
            received += drain(&*other_server);
            std::thread::sleep(Duration::from_millis(1));
            let is_in_time = begun.elapsed() < Duration::from_secs(60);
            assert!(is_in_time, "{received} bytes received, {} frames dropped", dropped());
        }
        // The ceiling permits a burst of the bytes of 20 ms, and one frame more.
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap() + 20_000_000;
        let most = RATE * nanos / 1_000_000_000 + FRAME;
        assert!(u64::try_from(received).unwrap() <= most, "{received} bytes, at most {most}");
        // The stream receives ten times the bytes that the ceiling permits in a second.
        exchange(&*client, &*server, 10 * usize::try_from(RATE).unwrap());
        let frames = transport.streams()[0].frame_counts.unwrap();
        assert_eq!((frames.undeliverable_frames, frames.dropped_frames), (0, 0));
        transport.detach_orb();
        // Without the program, there is no ceiling: the connection of best effort delivers the
        // waiting bytes within the time limit.
        let waiting = fill(&*other_client);
        let mut late = 0;
        while late < waiting {
            let deadline = corelane_net::WaitLimit::Until(Monotonic::now() + Duration::from_secs(60));
            late += other_server.recv(&mut [0; 65_536], deadline).unwrap();
        }
    });
}
