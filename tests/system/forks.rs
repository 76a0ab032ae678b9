//! A forked child does not use the ORB and the connections of its parent.

use corelane::{Completion, Dispatch, SystemException, SystemExceptionKind as Kind};
use corelane_sys::process::run_in_child;
use corelane_tests::{client, serve};

fn is_clear(told: &SystemException) -> bool {
    (told.kind(), told.completed()) == (Kind::BadInvOrder, Completion::No) && told.to_string().contains("forked")
}

#[test]
fn orb_of_the_parent_refuses_calls_in_a_forked_child() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let (orb, probe) = client(&server.ior);
    assert_eq!(probe.cube_octet(2).unwrap(), 8);
    // The fork copies the ORB, so the parent's ORB and reference remain valid when the child drops
    // its copies.
    let mut of_child = Some((orb, probe));
    let told = run_in_child(|| {
        let Some((orb, probe)) = of_child.take() else { return false };
        let told = [probe.cube_octet(3), probe.cube_octet(3), server.probe.cube_octet(3)];
        let _ = orb.shutdown(true);
        drop((orb, probe));
        told.iter().all(|told| told.as_ref().is_err_and(is_clear))
    });
    assert!(told.unwrap());
    let (_orb, probe) = of_child.unwrap();
    assert_eq!(probe.cube_octet(4).unwrap(), 64);
    let counts = server.orb.event_counts();
    assert_eq!((counts.connections_opened, counts.connections_closed, counts.protocol_faults), (1, 0, 0));
}
