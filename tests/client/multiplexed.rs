//! Deferred calls, and calls that share a connection because all connections are in use.

use std::time::{Duration, Instant};

use corelane::{
    CallPolicies, Canceller, Completion, ConnectionPoolExhaustedAction, Dispatch, Orb, SystemExceptionKind as Kind,
    Timeout,
};
use corelane_tests::{EVERY_DISPATCH, ProbeRef, client, serve, serve_at};

fn meet(dispatch: Dispatch) {
    let server = serve(dispatch);
    let orb = Orb::builder()
        .max_connections_per_server(1)
        .on_connection_pool_exhausted(ConnectionPoolExhaustedAction::Multiplex)
        .build()
        .unwrap();
    let probe: ProbeRef = orb.string_to_reference(&server.ior).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                probe.meet(4).unwrap();
                for value in 0..50 {
                    assert_eq!(probe.cube_long(value).unwrap(), value * value * value);
                    assert_eq!(probe.echo("über").unwrap(), "über");
                }
                let refused = probe.refuse(7).unwrap_err();
                assert!(refused.to_string().contains("because"), "{refused}");
            });
        }
    });
    assert_eq!(server.orb.event_counts().connections_opened, 2, "{dispatch:?}");
}

#[test]
fn calls_share_a_connection_if_every_connection_is_in_use() {
    meet(Dispatch::LeaderFollowers { threads: 4 });
    meet(Dispatch::HalfSyncHalfAsync { threads: 4, max_queued: 64 });
}

#[test]
fn deferred_calls_run_at_the_same_time_and_are_answered_in_any_order() {
    for dispatch in EVERY_DISPATCH {
        let server = serve(dispatch);
        let (_orb, probe) = client(&server.ior);
        let object = probe.as_object();
        let mut calls: Vec<_> = (0..60i32)
            .map(|value| {
                let arguments = move |encoder: &mut corelane::Encoder<'static>| {
                    encoder.write_i32(value);
                    Ok(())
                };
                object.send_deferred("cube_long", arguments).unwrap()
            })
            .collect();
        for (value, call) in (0..60i32).zip(&mut calls).rev() {
            let result = call.reply().unwrap().read(|decoder| decoder.read_i32()).unwrap();
            assert_eq!(result, value * value * value, "{dispatch:?}");
            assert!(call.is_ready());
            assert_eq!(call.reply().unwrap_err().kind(), Kind::BadInvOrder);
        }
        assert_eq!(server.orb.event_counts().connections_opened, 1, "{dispatch:?}");
    }
}

#[test]
fn deferred_call_ends_at_its_deadline_and_its_connection_remains() {
    let server = serve(Dispatch::LeaderFollowers { threads: 4 });
    let (_orb, probe) = client(&server.ior);
    let wait = |level: i32, timeout: Timeout| {
        let policies = CallPolicies { timeout: Some(timeout), ..CallPolicies::NONE };
        let object = probe.as_object().with_policies(policies);
        object.send_deferred("wait_for_level", move |encoder| {
            encoder.write_i32(level);
            Ok(())
        })
    };
    wait(0, Timeout::Never).unwrap().reply().unwrap();
    // If the deadline passes before the request is sent, the test repeats the call.
    let mut sent = std::iter::repeat_with(|| wait(2, Timeout::Precise(Duration::from_millis(300))));
    let mut late = sent.find_map(Result::ok).unwrap();
    let mut in_time = wait(1, Timeout::Never).unwrap();
    assert!(!in_time.is_ready());
    let exception = late.reply().unwrap_err();
    assert_eq!((exception.kind(), exception.completed()), (Kind::Timeout, Completion::Maybe));
    server.probe.set_level(1).unwrap();
    in_time.reply().unwrap();
    drop(wait(2, Timeout::Never).unwrap());
    server.probe.set_level(2).unwrap();
    wait(0, Timeout::Never).unwrap().reply().unwrap();
    assert_eq!(server.orb.event_counts().connections_opened, 1);
}

#[test]
fn deferred_call_can_be_cancelled_before_its_reply_is_collected() {
    let server = serve(Dispatch::LeaderFollowers { threads: 2 });
    let (_orb, probe) = client(&server.ior);
    let canceller = Canceller::new().unwrap();
    let mut call = probe.as_object().with_canceller(&canceller).send_deferred("wait_for_level", |encoder| {
        encoder.write_i32(1);
        Ok(())
    });
    canceller.cancel();
    let exception = call.as_mut().unwrap().reply().unwrap_err();
    server.probe.set_level(1).unwrap();
    assert_eq!((exception.kind(), exception.completed()), (Kind::Transient, Completion::Maybe));
}

#[test]
fn deferred_call_to_a_stopped_server_was_not_sent() {
    let server = serve_at("127.0.0.5", Dispatch::LeaderFollowers { threads: 2 });
    let (_orb, probe) = client(&server.ior);
    let cube = |value: u8| {
        probe.as_object().send_deferred("cube_octet", move |encoder| {
            encoder.write_u8(value);
            Ok(())
        })
    };
    cube(2).unwrap().reply().unwrap();
    drop(server);
    let start = Instant::now();
    let failed = match cube(3) {
        Ok(mut call) => call.reply().map(drop).unwrap_err(),
        Err(exception) => exception,
    };
    assert_eq!((failed.kind(), failed.completed()), (Kind::Transient, Completion::No), "{failed}");
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn collocated_deferred_call_has_run_when_it_returns() {
    let server = serve(Dispatch::Reactive);
    let mut call = server.probe.as_object().send_deferred("cube_octet", |encoder| {
        encoder.write_u8(3);
        Ok(())
    });
    let call = call.as_mut().unwrap();
    assert!(call.is_ready());
    assert_eq!(call.reply().unwrap().read(|decoder| decoder.read_u8()).unwrap(), 27);
}
