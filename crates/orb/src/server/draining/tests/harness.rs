//! A harness in which a test drives the drain of a connection event by event.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::{Peer, ReadinessCallback, ShutdownDirection, Stream, WaitLimit};
use corelane_sys::lock::{LockScope, Mutex};

use super::*;
use crate::adapter::ObjectAdapter;
use crate::server::config::{ConnectionLimits, Dispatch, PoolConfig};
use crate::server::connection::{SendResult, WaitingRequest};
use crate::server::lane::ConnectionGuard;
use crate::server::message::Message;
use crate::server::strategy::Lane;
use crate::server::worker::Worker;

const ROOM: usize = 40;
const REPLY: usize = 100;
const REQUEST: &[u8] = b"GIOP\x01\x02\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00";

/// A number is the index of a request. In `End`, the peer closes its sending direction. In `Out`,
/// the thread that ran the request releases the connection. `Hold` parks the request, and `Again`
/// continues it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainEvent {
    End,
    Begin(usize),
    Answer(usize),
    Out(usize),
    Hold(usize),
    Again(usize),
    Read,
    Close,
}
pub(super) use DrainEvent::{Again, Answer, Begin, Close, End, Hold, Out, Read};

#[derive(Default)]
pub(super) struct ScriptedLine {
    pub(super) incoming: VecDeque<u8>,
    peer_half_closed: bool,
    unread: Vec<u8>,
    received: Vec<u8>,
    ended: bool,
    pub(super) closed: bool,
    report: Option<ReadinessCallback>,
}

#[derive(Clone)]
pub(super) struct ScriptedStream(pub(super) Arc<Mutex<ScriptedLine>>);

impl std::fmt::Debug for ScriptedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Stream for ScriptedStream {
    fn recv(&self, buffer: &mut [u8], _: WaitLimit) -> io::Result<usize> {
        let mut wire = self.0.lock();
        if wire.incoming.is_empty() {
            return if wire.peer_half_closed || wire.closed { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let count = buffer.len().min(wire.incoming.len());
        buffer.iter_mut().zip(wire.incoming.drain(..count)).for_each(|(place, octet)| *place = octet);
        Ok(count)
    }

    fn send_vectored(&self, slices: &[IoSlice<'_>], _: WaitLimit) -> io::Result<usize> {
        let mut wire = self.0.lock();
        if wire.ended || wire.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let before = wire.unread.len();
        wire.unread.extend(slices.iter().flat_map(|slice| slice.iter()).take(ROOM - before));
        match wire.unread.len() - before {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            sent => Ok(sent),
        }
    }

    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn set_readiness_callback(&self, report: ReadinessCallback) -> bool {
        self.0.lock().report = Some(Arc::clone(&report));
        report();
        true
    }

    fn set_coarse_timeouts(&self, _: Duration, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn shutdown(&self, direction: ShutdownDirection) {
        let mut wire = self.0.lock();
        wire.ended = true;
        wire.closed |= direction == ShutdownDirection::Both;
    }

    fn peer(&self) -> &Peer {
        &Peer::Unknown
    }
}

fn reply_to(request: usize) -> [u8; REPLY] {
    [1 + u8::try_from(request).unwrap(); REPLY]
}

const HOUR: Duration = Duration::from_secs(3600);

/// A lane without threads: the test does their work.
pub(super) fn lane() -> Arc<Lane> {
    lane_with(HOUR)
}

pub(super) fn lane_with(write_timeout: Duration) -> Arc<Lane> {
    let dispatch = Dispatch::HalfSyncHalfAsync { threads: 2, max_queued: 16 };
    let config = PoolConfig::default()
        .dispatch(dispatch)
        .connection_limits(ConnectionLimits::default().write_timeout(write_timeout));
    Lane::new(config, Vec::new(), HOUR, None, None).unwrap()
}

pub(super) struct DrainHarness<'l> {
    lane: &'l Arc<Lane>,
    core: &'l Arc<ObjectAdapter>,
    worker: Worker,
    pub(super) stream: ScriptedStream,
    pub(super) connection: Weak<Connection>,
    running: [Option<(ConnectionGuard<'l>, Arc<Connection>)>; 2],
    held: [Option<(WaitingRequest, Message)>; 2],
    answers: Vec<u8>,
    begun: usize,
    closed: bool,
}

impl<'l> DrainHarness<'l> {
    pub(super) fn new(lane: &'l Arc<Lane>, core: &'l Arc<ObjectAdapter>, requests: usize) -> Self {
        let stream = ScriptedStream(Arc::new(Mutex::new("line", LockScope::Connection, ScriptedLine::default())));
        stream.0.lock().incoming.extend(REQUEST.repeat(requests));
        lane.adopt(core, Box::new(stream.clone()));
        let connection = lane.connections.iter().next().map(|connection| Arc::downgrade(&connection));
        let mut run = DrainHarness {
            lane,
            core,
            worker: Worker::new(),
            stream,
            connection: connection.unwrap(),
            running: [None, None],
            held: [None, None],
            answers: Vec::new(),
            begun: 0,
            closed: false,
        };
        run.work();
        run
    }

    pub(super) fn work(&mut self) {
        while self.lane.has_ready() {
            self.lane.step(self.core, &mut self.worker, Some(Duration::ZERO)).unwrap();
        }
    }

    pub(super) fn report(&mut self) {
        let report = self.stream.0.lock().report.clone();
        report.unwrap()();
        self.work();
    }

    fn begin(&mut self, request: usize, next: Option<(WaitingRequest, Message)>) {
        let Some((waiting, message)) = next else { return };
        if let Some(started) = self.lane.begin_waiting_request(waiting, message) {
            self.running[request] = Some((started.guard, started.connection));
            self.begun += 1;
        }
    }

    pub(super) fn answer(&self, request: usize) -> Option<SendResult> {
        let (_, connection) = self.running[request].as_ref()?;
        Some(connection.send(&reply_to(request), WaitLimit::Now))
    }

    pub(super) fn happen(&mut self, event: DrainEvent) {
        match event {
            End => {
                self.stream.0.lock().peer_half_closed = true;
                self.report();
            }
            Begin(request) => {
                let next = self.lane.strategy.request_queue().and_then(|queue| queue.try_pop());
                self.begin(request, next);
            }
            Answer(request) => {
                if let Some(sent) = self.answer(request) {
                    assert!(matches!(sent, SendResult::Complete | SendResult::Queued), "{sent:?}");
                    self.answers.extend(reply_to(request));
                }
            }
            Out(request) => drop(self.running[request].take()),
            Hold(request) => {
                if let Some((_held, connection)) = self.running[request].take() {
                    self.begun -= 1;
                    let header = corelane_wire::giop::Header::parse(REQUEST.first_chunk().unwrap()).unwrap();
                    self.held[request] = Some((
                        connection.add_waiting_request(Duration::ZERO),
                        Message::Assembled(header, REQUEST.to_vec(), vec![]),
                    ));
                }
            }
            Again(request) => {
                let next = self.held[request].take();
                self.begin(request, next);
            }
            Read => loop {
                let mut wire = self.stream.0.lock();
                let ScriptedLine { unread, received, .. } = &mut *wire;
                if unread.is_empty() {
                    break;
                }
                received.append(unread);
                drop(wire);
                self.report();
            },
            Close => {
                self.lane.close(self.core);
                self.closed = true;
            }
        }
        self.work();
        if event == Read {
            let received = self.stream.0.lock().received.len();
            assert!(
                received >= self.answers.len(),
                "the drain must send all output that the peer reads, but sent {received} bytes"
            );
        }
    }

    /// Runs the queued requests, and asserts that the drain ends and that the peer gets each reply
    /// or CloseConnection.
    pub(super) fn end(&mut self, requests: usize) {
        self.happen(Read);
        while let Some(next) = self.lane.strategy.request_queue().and_then(|queue| queue.try_pop()) {
            self.begin(0, Some(next));
            [Answer(0), Out(0), Read].into_iter().for_each(|event| self.happen(event));
        }
        self.happen(Read);
        let wire = self.stream.0.lock();
        let (answers, rest) = wire.received.split_at(self.answers.len());
        assert_eq!(answers, self.answers);
        if self.closed {
            assert!(rest.is_empty() || rest == final_messages::close_connection(), "{rest:?}");
            assert!(
                self.begun == requests || !rest.is_empty(),
                "a request that was not answered must be followed by CloseConnection"
            );
        } else {
            assert_eq!((self.begun, rest), (requests, &[][..]));
        }
        drop(wire);
        assert_eq!(self.lane.draining.len(), 0, "the drain must have ended");
        assert!(!self.lane.poll_all_draining(self.core) && self.connection.upgrade().is_none());
    }
}
