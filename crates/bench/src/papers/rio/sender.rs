//! The sender, which is a separate process. It answers lines of its standard input:
//!
//! | line | answer |
//! |---|---|
//! | `configure INTERFACE` | `configured`, after the interface has its address and is up |
//! | `receive` | the number of threads that receive for the interface |
//! | `echo PORT PRIORITY WARM-UP COUNT` | the times of the counted calls in nanoseconds; priority 0 is the ordinary class |
//! | `requests` | the times of the requests of the last `echo`'s counted calls in nanoseconds: from the call to the server's thread |
//! | `call REFERENCE PRIORITY WARM-UP COUNT` | as `echo`, for calls with a sequence of octets |
//! | `send PORT PRIORITY RATE` | `sending`, after a thread has begun to send as much as it can, or at most RATE bytes per second |
//! | `limit RATE` | `limited`, after the interface sends at most RATE bytes per second; 0 ends this |
//! | `quiet` | `quiet`, after all these threads have ended; an error if one of them ended before |

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::Orb;
use corelane_rio::feature_level::FeatureLevel;
use corelane_rio::{RioConfig, RioTransport};
use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling, ThreadBuilder};
use corelane_sys::{clock, socket};

use super::link;
use super::shared::{ECHO_BYTES, failed, joined, whole_answer};
use crate::Failure;
use crate::operation::MeasuredOperation;
use crate::orb::client::{target, two_way};
use crate::orb::client_orb;
use crate::orb::generated::cubit::CountedTargetRef;
use crate::sample::{Samples, time_calls};
use crate::service::serve_lines;

const BLOCK: usize = 8 * 1024;
/// Number of blocks after which a thread of fixed priority pauses for a millisecond.
const BLOCKS_AT_ONCE: u32 = 16;
const CALL: MeasuredOperation = MeasuredOperation::Octets(ECHO_BYTES);
const PATIENCE: Duration = Duration::from_secs(5);
const NOTICE: Duration = Duration::from_millis(100);

struct Sender {
    core: usize,
    interface: String,
    connections: BTreeMap<u16, TcpStream>,
    /// Times of the requests of the last calls in nanoseconds.
    requests: Vec<u64>,
    orb: Orb,
    objects: BTreeMap<String, CountedTargetRef>,
    /// Holds the transmit classes with their ceiling.
    limiting: Option<RioTransport>,
    is_over: Arc<AtomicBool>,
    sending: Vec<JoinHandle<io::Result<()>>>,
}

pub(crate) fn serve(core: usize) -> Result<(), Failure> {
    let mut sender = Sender {
        core,
        interface: String::new(),
        connections: BTreeMap::new(),
        requests: Vec::new(),
        orb: client_orb(0)?,
        objects: BTreeMap::new(),
        limiting: None,
        is_over: Arc::default(),
        sending: Vec::new(),
    };
    println!("ready");
    serve_lines(|line| Some(whole_answer(sender.answer(line)))).map_err(failed)
}

impl Sender {
    fn answer(&mut self, line: &str) -> Result<String, Failure> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["configure", interface] => {
                interface.clone_into(&mut self.interface);
                link::configure(interface, link::SENDER)?;
                Ok("configured".to_owned())
            }
            ["receive"] => link::receive_on(&self.interface, self.core).map(|threads| threads.to_string()),
            ["echo", port, priority, warm_up, count] => {
                let mut requests = Vec::with_capacity(parsed::<usize>(count)?.max(parsed(warm_up)?));
                let stream = self.connection(parsed(port)?)?;
                let echo = |count: usize, samples: &mut Samples| {
                    requests.clear();
                    let called = time_calls(count, samples, || echo(stream).map(|request| requests.push(request)));
                    called.map(drop).map_err(|error| Failure::new(format!("a call failed: {error}")))
                };
                let answer = timed(priority, parsed(warm_up)?, parsed(count)?, echo);
                self.requests = requests;
                answer
            }
            ["requests"] => Ok(joined(&self.requests)),
            ["call", reference, priority, warm_up, count] => {
                let object = self.object(reference)?;
                let call = |count: usize, samples: &mut Samples| two_way(&object, CALL, count, samples).map(drop);
                timed(priority, parsed(warm_up)?, parsed(count)?, call)
            }
            ["send", port, priority, rate] => {
                self.send(parsed(port)?, scheduling(priority)?, parsed(rate)?)?;
                Ok("sending".to_owned())
            }
            ["limit", rate] => {
                self.limit(parsed(rate)?)?;
                Ok("limited".to_owned())
            }
            ["quiet"] => {
                self.quiet()?;
                Ok("quiet".to_owned())
            }
            _ => Err(Failure::new(format!("not understood: {line}"))),
        }
    }

    fn limit(&mut self, rate: u64) -> Result<(), Failure> {
        let journals = std::env::temp_dir().join(format!("corelane-rio-{}", std::process::id()));
        if rate == 0 {
            self.limiting = None;
            let _ = std::fs::remove_dir(journals);
            return Ok(());
        }
        let config = RioConfig::for_interface(&self.interface).max_level(FeatureLevel::KernelPriorities);
        let limiting = RioTransport::new(config.max_best_effort_send_rate(Some(rate)).journal_folder(journals));
        // Checks only the level. The transport may lack receive threads, because the benchmark's
        // own threads receive.
        let lack = limiting.missing_priorities_reason().unwrap_or_default();
        if limiting.level() != FeatureLevel::KernelPriorities {
            return Err(Failure::new(format!("{}; {lack}", limiting.level_limit_reason())));
        }
        self.limiting = Some(limiting);
        Ok(())
    }

    fn connection(&mut self, port: u16) -> Result<&mut TcpStream, Failure> {
        match self.connections.entry(port) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(connect(port, PATIENCE)?)),
        }
    }

    fn object(&mut self, reference: &str) -> Result<CountedTargetRef, Failure> {
        if let Some(object) = self.objects.get(reference) {
            return Ok(object.clone());
        }
        let object = target(&self.orb, reference)?;
        self.objects.insert(reference.to_owned(), object.clone());
        Ok(object)
    }

    /// Starts a thread that sends until [`quiet`](Self::quiet) ends it. The thread sends at most
    /// `rate` bytes per second, or as much as it can if `rate` is 0.
    fn send(&mut self, port: u16, scheduling: Scheduling, rate: u32) -> Result<(), Failure> {
        let mut stream = connect(port, NOTICE)?;
        if rate > 0 {
            socket::set_max_pacing_rate(stream.as_fd(), rate).map_err(failed)?;
        }
        // Drops unsent data at the end of the connection, so that they do not delay the server's
        // next connection.
        socket::set_linger(stream.as_fd(), Some(Duration::ZERO)).map_err(failed)?;
        let is_over = self.is_over.clone();
        let builder = ThreadBuilder::new().name("bench/send").affinity(CpuSet::one(self.core));
        let sleeps = scheduling != Scheduling::Other;
        let thread =
            builder.scheduling(scheduling).spawn(move || send_until(&is_over, sleeps, |block| stream.write(block)));
        self.sending.push(thread.map_err(failed)?);
        Ok(())
    }

    /// Ends the threads that send.
    ///
    /// # Errors
    /// A thread ended before, so the calls beside it had less load.
    fn quiet(&mut self) -> Result<(), Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        let ends: Vec<_> = self.sending.drain(..).map(JoinHandle::join).collect();
        self.is_over.store(false, Ordering::Relaxed);
        for end in ends {
            let end = end.map_err(|_| Failure::new("a thread that sends has panicked"))?;
            end.map_err(|error| Failure::new(format!("a thread stopped sending before the end: {error}")))?;
        }
        Ok(())
    }
}

/// Sends blocks until `is_over`. With `sleeps`, pauses for a millisecond after each
/// [`BLOCKS_AT_ONCE`] blocks.
///
/// # Errors
/// The connection failed.
fn send_until(is_over: &AtomicBool, sleeps: bool, mut send: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
    let (block, mut blocks) = ([0; BLOCK], 0_u32);
    while !is_over.load(Ordering::Relaxed) {
        match send(&block) {
            // A time-out is not an error. It lets the thread check `is_over`.
            Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(error);
            }
            _ => blocks = blocks.wrapping_add(1),
        }
        // A thread of fixed priority must leave the core to others even if TCP accepts all bytes.
        if sleeps && blocks.is_multiple_of(BLOCKS_AT_ONCE) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

fn connect(port: u16, timeout: Duration) -> Result<TcpStream, Failure> {
    let open = || {
        let stream = TcpStream::connect((link::RECEIVER, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok::<_, io::Error>(stream)
    };
    open().map_err(|error| Failure::new(format!("cannot connect to port {port}: {error}")))
}

/// Makes uncounted and then counted calls at a priority, and returns the times of the counted calls
/// in nanoseconds.
fn timed(
    priority: &str,
    warm_up: usize,
    count: usize,
    mut calls: impl FnMut(usize, &mut Samples) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let scheduling = scheduling(priority)?;
    let (mut uncounted, mut samples) = (Samples::with_capacity(warm_up), Samples::with_capacity(count));
    let before = thread::scheduling(None).map_err(failed)?;
    thread::set_scheduling(None, scheduling).map_err(failed)?;
    let called = calls(warm_up, &mut uncounted).and_then(|()| calls(count, &mut samples));
    thread::set_scheduling(None, before).map_err(failed)?;
    called.map(|()| joined(samples.skip_first(0)))
}

/// Makes a call, and returns the time in nanoseconds from the call until the server's thread had
/// the message. Both sides read the same clock, and the server's thread puts its reading into the
/// reply.
fn echo(stream: &mut TcpStream) -> io::Result<u64> {
    let (mut message, began) = ([7; ECHO_BYTES], clock::now().as_nanos());
    stream.write_all(&message)?;
    stream.read_exact(&mut message)?;
    Ok(message.first_chunk().map_or(0, |arrival| u64::from_ne_bytes(*arrival).saturating_sub(began)))
}

fn scheduling(word: &str) -> Result<Scheduling, Failure> {
    Ok(match parsed(word)? {
        0 => Scheduling::Other,
        priority => Scheduling::Fifo(priority),
    })
}

fn parsed<T: std::str::FromStr>(word: &str) -> Result<T, Failure> {
    word.parse().map_err(|_| Failure::new(format!("`{word}` is not a number of this line")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sending_ends_when_it_is_over_or_with_an_error() {
        let is_over = AtomicBool::new(false);
        let mut results =
            vec![Err(io::ErrorKind::WouldBlock), Ok(BLOCK), Err(io::ErrorKind::TimedOut), Ok(7)].into_iter();
        let sent = send_until(&is_over, false, |block| match results.next() {
            Some(result) => result.map_err(io::Error::from),
            None => {
                is_over.store(true, Ordering::Relaxed);
                Ok(block.len())
            }
        });
        assert!(sent.is_ok() && results.next().is_none());
        is_over.store(false, Ordering::Relaxed);
        let broken = send_until(&is_over, false, |_| Err(io::ErrorKind::BrokenPipe.into()));
        assert_eq!(broken.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
