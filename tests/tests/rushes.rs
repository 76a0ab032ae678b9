//! Many short requests on one connection, which one thread of a pool may run alone for a while, with requests behind them that need
//! every thread of the pool at once.

use corelane::{Dispatch, Encoder, Reference};
use corelane_tests::{client, serve};

#[test]
fn requests_that_wait_for_one_another_follow_a_rush_of_short_ones() {
    for threads in [2u32, 4] {
        let server = serve(Dispatch::LeaderFollowers { threads: threads as usize });
        let (_orb, probe) = client(&server.ior);
        let object = probe.as_object();
        let send = |operation: &'static str, value: i32| {
            let argument = move |encoder: &mut Encoder<'static>| {
                encoder.write_i32(value);
                Ok(())
            };
            object.send_deferred(operation, argument).unwrap()
        };
        for _ in 0..10 {
            let mut short: Vec<_> = (0..600).map(|value| (value, send("cube_long", value))).collect();
            let mut meeting: Vec<_> = (0..threads).map(|_| send("meet", threads.cast_signed())).collect();
            for (value, call) in &mut short {
                let result = call.reply().unwrap().read(|decoder| decoder.read_i32()).unwrap();
                assert_eq!(result, value.pow(3));
            }
            for call in &mut meeting {
                call.reply().unwrap();
            }
        }
        assert_eq!(server.orb.event_counts().connections_opened, 1);
    }
}
