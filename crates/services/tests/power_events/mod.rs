//! Power failures under a durable event channel: the disk loses some of the writes after the last
//! sync. The last write may be incomplete.

use corelane::{Any, Orb};
use corelane_services::events::corelane_events::DurableChannelRef;
use corelane_services::events::{EventChannel, EventStore, RECORD_FORMAT, Retention};
use corelane_services::store::FileStore;

use crate::disk::{self, Disk, Random};

const RETENTION: Retention = Retention { max_events: 40, max_bytes: 1 << 20, max_age: None };

fn serve(disk: &Disk) -> (Orb, DurableChannelRef) {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let store = EventStore::open(FileStore::with_backends(disk.files(), RECORD_FORMAT).unwrap()).unwrap();
    let channel = EventChannel::builder().durable(&store, RETENTION).serve(&orb).unwrap();
    let durable = DurableChannelRef::unchecked_narrow(channel.cos_reference().as_object());
    (orb, durable)
}

/// Returns the number of each event, and the number in its value.
fn found(channel: &DurableChannelRef) -> Vec<(u64, u64)> {
    let events = channel.events_after(0, 1_000, 0).unwrap();
    events.iter().map(|it| (it.number, it.event.data.any_value.extract::<Vec<u64>>().unwrap()[0])).collect()
}

/// Number of power failures, large enough for some between a commit and its acknowledgement.
const USUAL_CUTS: usize = 200;

/// Each acknowledged event must remain, with its number, and so must the deletion of old events.
/// The event in progress must be complete or absent.
#[test]
fn acknowledged_events_survive_power_failures_in_order() {
    let disk = Disk::default();
    let (orb, channel) = serve(&disk);
    disk.start_log();
    let mut random = Random(17);
    // The number of the disk's operations at the acknowledgement of each event.
    let mut lengths = Vec::new();
    for number in 1..=120_u64 {
        let size = if random.below(8) == 0 { 5_000 } else { 20 };
        let value = Any::new(&vec![number; 1 + random.below(size)]).unwrap();
        assert_eq!(channel.publish(&value).unwrap(), number);
        lengths.push(disk.log_len());
    }
    let length = disk.log_len();
    orb.shutdown(true).unwrap();
    let mut whole = 0;
    let cuts = disk::cuts(USUAL_CUTS);
    for number in 0..cuts {
        let cut = if number == 0 { length } else { random.below(length + 1) };
        let (orb, channel) = serve(&disk.cut(cut, &mut random));
        let acknowledged = lengths.iter().filter(|at| **at <= cut).count() as u64;
        let found = found(&channel);
        let last = channel.stream_status().unwrap().last;
        assert!((acknowledged..=acknowledged + 1).contains(&last), "cut {cut}: {last} events, {acknowledged}");
        whole += u64::from(last > acknowledged);
        let first = last.saturating_sub(RETENTION.max_events) + 1;
        // A commit deletes only events of earlier commits, so the range has no gap.
        assert_eq!(found, (first..=last).map(|number| (number, number)).collect::<Vec<_>>(), "cut {cut}");
        assert_eq!(channel.publish(&Any::new(&vec![0_u64]).unwrap()).unwrap(), last + 1);
        orb.shutdown(true).unwrap();
    }
    assert!(whole > 0 || cuts < USUAL_CUTS, "some power failure must be between a commit and its acknowledgement");
}
