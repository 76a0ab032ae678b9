//! Servers that end a connection in the middle of a reply.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use corelane::{
    CallPolicies, Completion, ConnectionPoolExhaustedAction, Orb, SystemException, SystemExceptionKind as Kind,
};
use corelane_tests::ProbeRef;
use corelane_tests::scripted::{
    CLOSE_CONNECTION, LOCATE_REPLY, MESSAGE_ERROR, REPLY, ScriptedServer, message, reply_start, serve,
};

type Ending = fn(&mut TcpStream, u8, u32) -> io::Result<()>;

fn end() -> io::Result<()> {
    Err(io::ErrorKind::ConnectionAborted.into())
}

fn part(kind: u8, id: u32) -> Vec<u8> {
    if kind == LOCATE_REPLY { [id, 1].map(u32::to_le_bytes).concat() } else { reply_start(id, 0) }
}

const ENDINGS: [(&str, Ending); 8] = [
    ("a fragment, CloseConnection", |stream, kind, id| {
        stream.write_all(&message(kind, true, &part(kind, id)))?;
        stream.write_all(&message(CLOSE_CONNECTION, false, &[]))?;
        end()
    }),
    ("a fragment and CloseConnection at once", |stream, kind, id| {
        let octets = [message(kind, true, &part(kind, id)), message(CLOSE_CONNECTION, false, &[])].concat();
        stream.write_all(&octets)?;
        end()
    }),
    ("a fragment, MessageError", |stream, kind, id| {
        stream.write_all(&message(kind, true, &part(kind, id)))?;
        stream.write_all(&message(MESSAGE_ERROR, false, &[]))?;
        end()
    }),
    ("a fragment", |stream, kind, id| {
        stream.write_all(&message(kind, true, &part(kind, id)))?;
        end()
    }),
    ("half a header", |stream, kind, id| {
        stream.write_all(&message(kind, false, &part(kind, id))[..7])?;
        end()
    }),
    ("half a reply", |stream, kind, id| {
        stream.write_all(&message(kind, false, &[part(kind, id), vec![0; 64]].concat())[..40])?;
        end()
    }),
    ("MessageError", |stream, _, _| {
        stream.write_all(&message(MESSAGE_ERROR, false, &[]))?;
        end()
    }),
    ("the end", |_, _, _| end()),
];

fn server(well: usize, kind: u8, ending: Ending) -> (ScriptedServer, Arc<AtomicUsize>) {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let server = serve(well, move |stream, id| {
        count.fetch_add(1, Ordering::SeqCst);
        ending(stream, kind, id)
    });
    (server, ended)
}

fn client(server: &ScriptedServer) -> (Orb, ProbeRef) {
    let policies = CallPolicies { timeout: Some(Duration::from_secs(60).into()), ..CallPolicies::NONE };
    let builder = Orb::builder()
        .call_policies(policies)
        .max_connections_per_server(1)
        .on_connection_pool_exhausted(ConnectionPoolExhaustedAction::Multiplex);
    let orb = builder.build().unwrap();
    let object = orb.string_to_object(&format!("corbaloc::1.2@{}/Key", server.address)).unwrap().unwrap();
    (orb, ProbeRef::from_object(object))
}

fn cube(probe: &ProbeRef) -> Result<(), SystemException> {
    probe.cube_long(2).map(drop)
}

fn deferred(probe: &ProbeRef) -> Result<(), SystemException> {
    let argument = |encoder: &mut corelane::Encoder<'static>| {
        encoder.write_i32(2);
        Ok(())
    };
    probe.as_object().send_deferred("cube_long", argument).and_then(|mut call| call.reply().map(drop))
}

fn locate(probe: &ProbeRef) -> Result<(), SystemException> {
    probe.as_object().validate_connection()
}

type Call = fn(&ProbeRef) -> Result<(), SystemException>;

/// The name, the number of successful calls before the call, the type of the message that answers
/// the call, and the call.
const CALLS: [(&str, usize, u8, Call); 4] = [
    ("on a new connection", 0, REPLY, cube),
    ("on a connection that has served", 1, REPLY, cube),
    ("on a shared connection", 0, REPLY, deferred),
    ("locate", 0, LOCATE_REPLY, locate),
];

#[test]
fn call_with_a_partial_reply_is_completed_maybe_and_not_sent_again() {
    with_good_clients(|| {
        for (way, well, kind, call) in CALLS {
            for (what, ending) in ENDINGS {
                let (server, ended) = server(well, kind, ending);
                let (_orb, probe) = client(&server);
                (0..well).for_each(|_| assert_eq!(probe.cube_long(3).unwrap(), 27));
                let exception = call(&probe).unwrap_err();
                let outcome = (exception.kind(), exception.completed(), ended.load(Ordering::SeqCst));
                assert_eq!(outcome, (Kind::CommFailure, Completion::Maybe, 1), "{way}, {what}: {exception}");
            }
        }
    });
}

/// The call without a reply is sent again, because CloseConnection says that it has not run.
#[test]
fn on_a_shared_connection_only_the_call_with_a_partial_reply_fails() {
    let first = AtomicUsize::new(0);
    let server = serve(0, move |stream, id| match first.fetch_add(1, Ordering::SeqCst) {
        0 => stream.write_all(&message(REPLY, true, &reply_start(id, 0))),
        1 => {
            stream.write_all(&message(CLOSE_CONNECTION, false, &[]))?;
            end()
        }
        _ => stream.write_all(&corelane_tests::scripted::successful_reply(id)),
    });
    let (_orb, probe) = client(&server);
    let send = || {
        let argument = |encoder: &mut corelane::Encoder<'static>| {
            encoder.write_i32(3);
            Ok(())
        };
        probe.as_object().send_deferred("cube_long", argument).unwrap()
    };
    let (mut begun, mut other) = (send(), send());
    let exception = begun.reply().unwrap_err();
    assert_eq!((exception.kind(), exception.completed()), (Kind::CommFailure, Completion::Maybe), "{exception}");
    assert_eq!(other.reply().unwrap().read(|decoder| decoder.read_i32()).unwrap(), 27);
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
}

fn with_good_clients(attack: impl FnOnce()) {
    let server = serve(usize::MAX, |_, _| Ok(()));
    let over = AtomicBool::new(false);
    let answers: Vec<usize> = std::thread::scope(|scope| {
        let good = |_| {
            scope.spawn(|| {
                let (_orb, probe) = client(&server);
                let mut answers = 0;
                while answers == 0 || !over.load(Ordering::SeqCst) {
                    assert_eq!(probe.cube_long(3).unwrap(), 27);
                    answers += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                answers
            })
        };
        let clients: Vec<_> = (0..2).map(good).collect();
        let attacked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attack));
        over.store(true, Ordering::SeqCst);
        let answers = clients.into_iter().map(|client| client.join().unwrap()).collect();
        attacked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        answers
    });
    assert!(answers.iter().all(|answers| *answers > 0));
}
