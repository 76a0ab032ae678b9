//! Callbacks nested in both directions work in every dispatch architecture with few threads.
//!
//! Workers of a half-sync/half-async pool used to wait in place whatever `nested_wait` said: with as many nested calls as threads, the
//! next request of the chain stayed in the queue until the deadline. The shared threads of a pool with a thread per connection did the
//! same by default, and a JacORB client, whose threads share one connection, ran into it with four callers. Both were found by
//! interop/tests/dispatch.rs.

use std::thread;
use std::time::Duration;

use corelane::{Dispatch, NestedWait, Orb, PoolConfig, Reference};
use corelane_tests::{ProbeRef, Server, serve, serve_with};

fn served_by(dispatch: Dispatch, nested_wait: Option<NestedWait>) -> Server {
    serve_with(
        Orb::builder().pool(PoolConfig { dispatch, nested_wait, ..PoolConfig::default() }).listen("tcp:127.0.0.1:0"),
    )
}

/// Several callers at once, each with a chain of calls between both sides.
fn chains(server: &Server, callers: usize) {
    let caller = serve(Dispatch::LeaderFollowers { threads: 32 });
    let object = caller.orb.string_to_object(&server.ior).unwrap().unwrap();
    let probe = ProbeRef::from_object(object).with_timeout(Duration::from_secs(10));
    thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(probe.call_back(Some(&caller.probe), 6).unwrap(), 6);
                }
            });
        }
    });
}

#[test]
fn one_worker_of_a_half_synchronous_pool_serves_while_it_waits() {
    let dispatch = Dispatch::HalfSyncHalfAsync { threads: 1, queue: 64 };
    chains(&served_by(dispatch, Some(NestedWait::Serving { depth: 31 })), 6);
}

#[test]
fn two_workers_of_a_half_synchronous_pool_share_the_queue_while_they_wait() {
    let dispatch = Dispatch::HalfSyncHalfAsync { threads: 2, queue: 64 };
    chains(&served_by(dispatch, Some(NestedWait::Serving { depth: 31 })), 8);
}

#[test]
fn shared_threads_beside_threads_of_connections_serve_while_they_wait() {
    // No connection gets a thread of its own here.
    chains(&served_by(Dispatch::ThreadPerConnection { most: 0 }, None), 8);
}

#[test]
fn a_reactive_server_holds_eight_chains() {
    chains(&served_by(Dispatch::Reactive, None), 8);
}
