//! Every order in which the parts of an end can come: the peer's end is seen, requests begin to run, are held, answer and are done, the
//! peer reads, the lane closes. Each order runs in one thread over the lane itself, and a line of few octets.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::{Half, Peer, Report, Stream, Wait};
use corelane_sys::lock::{Mutex, Scope};

use super::*;
use crate::Orb;
use crate::server::config::{Dispatch, PoolConfig};
use crate::server::connection::{Sent, Waiting};
use crate::server::lane::Held;
use crate::server::worker::{Message, Worker};

/// Octets that the line takes before the peer reads.
const ROOM: usize = 40;
const REPLY: usize = 100;
/// A header of GIOP 1.2 with four octets behind it: nobody looks into it here.
const REQUEST: &[u8] = b"GIOP\x01\x02\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// The end of what the peer sends arrives.
    End,
    /// A thread begins with a request, answers it, and is done with it.
    Begin(usize),
    Answer(usize),
    Out(usize),
    /// What the request needs is not there: it waits without a thread, and then has its turn again.
    Hold(usize),
    Again(usize),
    /// The peer reads all that there is, for as long as there is some.
    Read,
    Close,
}
use Act::{Again, Answer, Begin, Close, End, Hold, Out, Read};

#[derive(Default)]
struct Wire {
    incoming: VecDeque<u8>,
    peer_ended: bool,
    /// Sent, and not read by the peer; then what it has read.
    unread: Vec<u8>,
    received: Vec<u8>,
    ended: bool,
    closed: bool,
    report: Option<Report>,
}

#[derive(Clone)]
struct Line(Arc<Mutex<Wire>>);

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Stream for Line {
    fn recv(&self, buffer: &mut [u8], _: Wait) -> io::Result<usize> {
        let mut wire = self.0.lock();
        if wire.incoming.is_empty() {
            return if wire.peer_ended || wire.closed { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let count = buffer.len().min(wire.incoming.len());
        buffer.iter_mut().zip(wire.incoming.drain(..count)).for_each(|(place, octet)| *place = octet);
        Ok(count)
    }

    fn send_vectored(&self, slices: &[IoSlice<'_>], _: Wait) -> io::Result<usize> {
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

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn report_to(&self, report: Report) -> bool {
        self.0.lock().report = Some(Arc::clone(&report));
        report();
        true
    }

    fn set_coarse_timeouts(&self, _: Duration, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn shutdown(&self, half: Half) {
        let mut wire = self.0.lock();
        wire.ended = true;
        wire.closed |= half == Half::Both;
    }

    fn peer(&self) -> &Peer {
        &Peer::Unknown
    }
}

/// One order, as far as it has come.
struct Run<'l> {
    lane: &'l Arc<Lane>,
    core: &'l Arc<Core>,
    worker: Worker,
    line: Line,
    connection: Weak<Connection>,
    running: [Option<(Held<'l>, Arc<Connection>)>; 2],
    held: [Option<(Waiting, Message)>; 2],
    /// What the peer is to get.
    answers: Vec<u8>,
    begun: usize,
    closed: bool,
}

impl<'l> Run<'l> {
    fn new(lane: &'l Arc<Lane>, core: &'l Arc<Core>, requests: usize) -> Self {
        let line = Line(Arc::new(Mutex::new("line", Scope::Connection, Wire::default())));
        line.0.lock().incoming.extend(REQUEST.repeat(requests));
        lane.adopt(core, Box::new(line.clone()));
        let connection = lane.connections.iter().next().map(|connection| Arc::downgrade(&connection));
        let mut run = Run {
            lane,
            core,
            worker: Worker::new(),
            line,
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

    /// What the lane's own threads do.
    fn work(&mut self) {
        while self.lane.has_ready() {
            self.lane.step(self.core, &mut self.worker, Some(Duration::ZERO)).unwrap();
        }
    }

    fn report(&mut self) {
        let report = self.line.0.lock().report.clone();
        report.unwrap()();
        self.work();
    }

    fn begin(&mut self, request: usize, next: Option<(Waiting, Message)>) {
        let Some((waiting, message)) = next else { return };
        if let Some((held, connection, _)) = self.lane.begin(waiting, message) {
            self.running[request] = Some((held, connection));
            self.begun += 1;
        }
    }

    fn happen(&mut self, event: Act) {
        match event {
            End => {
                self.line.0.lock().peer_ended = true;
                self.report();
            }
            Begin(request) => {
                let next = self.lane.queue.as_ref().and_then(|queue| queue.try_pop());
                self.begin(request, next);
            }
            Answer(request) => {
                if let Some((_, connection)) = &self.running[request] {
                    let answer = [1 + u8::try_from(request).unwrap(); REPLY];
                    let sent = connection.send(&[&answer], Wait::Now);
                    assert!(matches!(sent, Sent::All | Sent::Queued), "{sent:?}");
                    self.answers.extend(answer);
                }
            }
            Out(request) => drop(self.running[request].take()),
            Hold(request) => {
                if let Some((_held, connection)) = self.running[request].take() {
                    self.begun -= 1;
                    let header = corelane_wire::giop::Header::parse(REQUEST.first_chunk().unwrap()).unwrap();
                    self.held[request] =
                        Some((connection.wait(), Message::Assembled(header, REQUEST.to_vec(), vec![])));
                }
            }
            Again(request) => {
                let next = self.held[request].take();
                self.begin(request, next);
            }
            Read => loop {
                let mut wire = self.line.0.lock();
                let Wire { unread, received, .. } = &mut *wire;
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
            let received = self.line.0.lock().received.len();
            assert!(received >= self.answers.len(), "what the peer could have does not go on: {received} octets");
        }
    }

    /// The rest, once everything has happened: what was put off runs, and the peer reads.
    fn end(&mut self, requests: usize) {
        self.happen(Read);
        while let Some(next) = self.lane.queue.as_ref().and_then(|queue| queue.try_pop()) {
            self.begin(0, Some(next));
            [Answer(0), Out(0), Read].into_iter().for_each(|event| self.happen(event));
        }
        self.happen(Read);
        let wire = self.line.0.lock();
        let (answers, rest) = wire.received.split_at(self.answers.len());
        assert_eq!(answers, self.answers);
        if self.closed {
            assert!(rest.is_empty() || rest == request::close_connection(), "{rest:?}");
            assert!(self.begun == requests || !rest.is_empty(), "who was not answered was not told either");
        } else {
            assert_eq!((self.begun, rest), (requests, &[][..]));
        }
        drop(wire);
        assert_eq!(self.lane.endings.len(), 0, "it has not ended");
        assert!(!self.lane.is_closing() && self.connection.upgrade().is_none());
    }
}

/// Every order in which the events of these rows can come, those of a row in their own.
fn orders(rows: &mut [VecDeque<Act>], begun: &mut Vec<Act>, each: &mut dyn FnMut(&[Act])) {
    if rows.iter().all(VecDeque::is_empty) {
        return each(begun);
    }
    for row in 0..rows.len() {
        if let Some(event) = rows[row].pop_front() {
            begun.push(event);
            orders(rows, begun, each);
            begun.pop();
            rows[row].push_front(event);
        }
    }
}

fn check(rows: &[&[Act]], requests: usize) -> usize {
    let orb = Orb::new().unwrap();
    let mut rows: Vec<VecDeque<Act>> = rows.iter().map(|row| row.iter().copied().collect()).collect();
    let mut count = 0;
    orders(&mut rows, &mut Vec::new(), &mut |order| {
        /// Says which order it was.
        struct Told<'o>(&'o [Act]);
        impl Drop for Told<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    eprintln!("in the order {:?}", self.0);
                }
            }
        }
        let _told = Told(order);
        let hour = Duration::from_secs(3600);
        let dispatch = Dispatch::HalfSyncHalfAsync { threads: 2, queue: 16 };
        let config = PoolConfig { dispatch, output_timeout: hour, ..PoolConfig::default() };
        let lane = Lane::new(config, Vec::new(), hour, None).unwrap();
        let mut run = Run::new(&lane, orb.core(), requests);
        order.iter().for_each(|event| run.happen(*event));
        run.end(requests);
        count += 1;
    });
    count
}

#[test]
fn a_peer_that_has_ended_has_its_answers_in_every_order() {
    let (first, second) = ([Begin(0), Answer(0), Out(0)], [Begin(1), Answer(1), Out(1)]);
    assert_eq!(check(&[&first, &second, &[End], &[Read]], 2), 1120);
}

#[test]
fn so_it_has_when_the_lane_closes_meanwhile() {
    let (first, second) = ([Begin(0), Answer(0), Out(0)], [Begin(1), Answer(1), Out(1)]);
    assert_eq!(check(&[&first, &second, &[End], &[Read], &[Close]], 2), 10_080);
}

#[test]
fn a_request_that_is_held_is_answered_in_every_order() {
    let held = [Begin(0), Hold(0), Again(0), Answer(0), Out(0)];
    assert_eq!(check(&[&held, &[End], &[Read]], 1), 42);
    assert_eq!(check(&[&held, &[End], &[Read], &[Close]], 1), 336);
    let other = [Begin(1), Answer(1), Out(1)];
    assert_eq!(check(&[&held, &other, &[End], &[Read]], 2), 5_040);
}
