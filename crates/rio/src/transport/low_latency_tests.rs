//! Streams of low latency, over a link between two network namespaces.

use std::time::Duration;

use super::packet_tests::{
    HOUR, SERVER, accept, config, exchange, listen, over_a_link, prepare_checksums, send_segments, steering, unread,
    wait_until,
};
use super::*;

/// A number of packets that the tests do not reach.
const MANY: u32 = 1_000_000;

fn low_latency(packets: u32, period: Duration) -> IoProperties {
    IoProperties { class: IoClass::LowLatency { packets, period }, ..IoProperties::default() }
}

fn frames(transport: &RioTransport) -> StreamCounts {
    transport.streams()[0].frame_counts.unwrap()
}

/// Sends segments until the tables have the connection: the first ones can be best effort.
fn begin(transport: &RioTransport, client: &dyn Stream) {
    wait_until(|| {
        send_segments(client, 1);
        let counts = frames(transport);
        counts.receive_context_frames + counts.queued_frames > 0
    });
}

/// Fails if a frame goes to the stream's kernel thread or becomes best effort.
#[test]
fn packets_below_the_cap_are_processed_in_the_receive_context() {
    over_a_link(prepare_checksums, |connect| {
        for host in [SERVER, "fd00::1"] {
            let transport = steering(config());
            let (listener, port) = listen(&transport, host, &low_latency(MANY, Duration::from_secs(1)));
            let (client, server) = (connect(host, port), accept(&*listener));
            begin(&transport, &*client);
            let (before, best_effort) = (frames(&transport), transport.best_effort_frames().unwrap());
            exchange(&*server, &*client, 100_000);
            let reached = unread(&*server);
            send_segments(&*client, 20);
            wait_until(|| unread(&*server) == reached + 20 * 100);
            let after = frames(&transport);
            // The client has sent acknowledgements and then segments, at least one frame of each.
            assert!(after.receive_context_frames > before.receive_context_frames + 1, "{after:?}");
            assert_eq!((after.queued_frames, after.undeliverable_frames), (0, 0));
            let others = transport.best_effort_frames().unwrap().undeliverable_frames;
            // Neighbour discovery counts nowhere, so the only frames of best effort are a few IPv6
            // reports.
            assert!(others < best_effort.undeliverable_frames + 10, "{others} frames of best effort");
            assert!(transport.streams()[0].kernel_thread.is_some());
        }
    });
}

/// The cap has room for three packets at once, and then for one in twenty minutes. Fails if the
/// receive context processes more, or if packets above the cap are lost.
#[test]
fn packets_above_the_cap_go_to_the_kernel_thread_of_the_stream() {
    over_a_link(prepare_checksums, |connect| {
        for host in [SERVER, "fd00::1"] {
            let transport = steering(config());
            transport.attach_orb();
            let (listener, port) = listen(&transport, host, &low_latency(3, HOUR));
            let (client, server) = (connect(host, port), accept(&*listener));
            exchange(&*client, &*server, 200_000);
            exchange(&*server, &*client, 200_000);
            let counts = frames(&transport);
            assert_eq!((counts.receive_context_frames, counts.undeliverable_frames), (3, 0));
            assert!(counts.queued_frames > 100, "{counts:?}");
            let reports = crate::status::read_reports().unwrap().reports;
            let shown = |name| crate::status::value_of(&reports[0].stream_fields[0], name).map(str::to_owned);
            let names = ["class", "cap_packets", "period_ns", "frames_in_context"];
            let expected = ["low latency", "3", "3600000000000", "3"];
            assert_eq!(names.map(shown), expected.map(|value| Some(value.to_owned())));
            // At a lower level, the kernel processes all packets as for plain TCP, without counts.
            transport.detach_orb();
            exchange(&*client, &*server, 100_000);
            assert_eq!(frames(&transport), counts);
            transport.attach_orb();
            wait_until(|| transport.level() == FeatureLevel::StreamSteering);
            exchange(&*client, &*server, 100_000);
            let later = frames(&transport);
            assert_eq!(later.receive_context_frames, 3);
            assert!(later.queued_frames > counts.queued_frames, "{later:?}");
            assert_eq!(transport.streams()[0].connections, 1);
            transport.detach_orb();
        }
    });
}
