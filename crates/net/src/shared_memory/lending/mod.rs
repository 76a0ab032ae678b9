//! Memory that the sides of a connection lend to each other, so that large payloads cross without a
//! copy.
//!
//! A payload is a sealed file (`corelane_sys::sealed`). The sender passes the file's descriptor
//! once, and then names the file by a number in each message that ends in the file's bytes. The
//! descriptors go through the *channel*, a further Unix socket, because the connection's own socket
//! refuses descriptors. The client opens the channel at the server's listener when one of the sides
//! first has something to lend, and sends this header:
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 7 | `CLNLENDS` |
//! | 8 to 19 | the connection's name, which the server has written into the rings' memory |
//!
//! No thread waits for the channel: payloads are copied until the server has found it.

mod files;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use corelane_sys::buffer::Buffer;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::process;
use corelane_sys::ring::SharedWord;
use corelane_sys::sealed::SealedFile;
use corelane_sys::socket::{self, Address, DescriptorFilterSocket, SocketOptions};

use self::files::{ReceivedFiles, SentFiles};
use super::HEADER_BYTES;
use super::peer_monitor::PeerState;
use super::user_id;
use crate::Peer;
use crate::socket::credentials;
use crate::stream::{LentReference, MemoryLending};

const MAGIC: [u8; 8] = *b"CLNLENDS";
/// Unit of the limits in the rings' memory, in bytes.
const UNIT: usize = 64 * 1024;
/// Maximum number of attempts of a client to open the channel.
const MAX_ATTEMPTS: u32 = 3;

/// The name by which a server knows a connection.
type Name = [u32; 3];

#[derive(Debug)]
pub(super) struct Lending {
    ends: Arc<PeerState>,
    peer: Peer,
    side: Side,
    /// Maximum memory in bytes that this side maps from the peer, and that it lends to the peer.
    limit: usize,
    /// True if the peer belongs to the same user or is root. Other users get no lent memory,
    /// because a process can keep lent memory for ever.
    is_trusted: bool,
    channel: OnceLock<DescriptorFilterSocket>,
    sent: PiMutex<SentFiles>,
    received: PiMutex<ReceivedFiles>,
}

#[derive(Debug)]
enum Side {
    Client { path: PathBuf, opening: Opening },
    Server { channels: Arc<Channels>, name: Name },
}

/// The attempts of a client to open the channel.
#[derive(Debug, Default)]
struct Opening {
    /// Number of attempts. Written, relaxed, by the thread that has set `is_running`.
    attempts: AtomicU32,
    /// True while a thread opens the channel. Set with acquire, cleared with release. The server
    /// keeps the first channel that it accepts. If two threads could open one each, the client
    /// might keep the one that the server drops.
    is_running: AtomicBool,
}

/// The right of the calling thread to open the channel. No other thread has it at the same time.
struct OpeningTurn<'o>(&'o Opening);

impl Drop for OpeningTurn<'_> {
    fn drop(&mut self) {
        // Release: pairs with `turn`, so that the next thread with the right sees the channel.
        self.0.is_running.store(false, Ordering::Release);
    }
}

impl Opening {
    /// Begins an attempt. `None` while another thread opens the channel, after it has been opened,
    /// and after the last attempt.
    fn turn(&self, channel: &OnceLock<DescriptorFilterSocket>) -> Option<OpeningTurn<'_>> {
        if self.attempts.load(Ordering::Relaxed) >= MAX_ATTEMPTS || self.is_running.swap(true, Ordering::Acquire) {
            return None;
        }
        let turn = OpeningTurn(self);
        // The thread that had the right before may have opened the channel.
        let attempts = self.attempts.load(Ordering::Relaxed);
        if channel.get().is_some() || attempts >= MAX_ATTEMPTS {
            return None;
        }
        self.attempts.store(attempts + 1, Ordering::Relaxed);
        Some(turn)
    }
}

/// A listener's connections whose channels have not arrived yet.
#[derive(Debug)]
pub(super) struct Channels {
    waiting: PiMutex<HashMap<Name, Weak<Lending>>>,
    named: AtomicU32,
}

impl Channels {
    pub(super) fn new() -> Arc<Self> {
        let waiting = PiMutex::new("channels of shared memory", LockScope::Lane, HashMap::new());
        Arc::new(Channels { waiting, named: AtomicU32::new(0) })
    }

    fn new_name(&self) -> io::Result<Name> {
        let random = process::random_number()?;
        // The first word is not 0, because 0 means that the server does not lend.
        Ok([random as u32 | 1, (random >> 32) as u32, self.named.fetch_add(1, Ordering::Relaxed)])
    }

    /// Hands a client's channel to the connection that it names. Drops the channel if there is no
    /// such connection, or if another user has opened the channel.
    pub(super) fn attach(&self, name: Name, channel: DescriptorFilterSocket, peer: &Peer) {
        let lending = self.waiting.lock().remove(&name).and_then(|lending| lending.upgrade());
        let Some(lending) = lending.filter(|lending| user_id(&lending.peer) == user_id(peer)) else { return };
        if lending.channel.set(channel).is_ok() {
            lending.ends.rings.publish_word(SharedWord::IsChannelFound, 1);
        }
    }
}

/// Returns the name in a client's header; `None` if the header does not open a channel.
pub(super) fn parse_channel_header(header: &[u8; HEADER_BYTES]) -> Option<Name> {
    let (magic, rest) = header.split_first_chunk::<8>()?;
    let mut words = rest.chunks_exact(4).map_while(|octets| octets.first_chunk().copied().map(u32::from_le_bytes));
    let name = [words.next()?, words.next()?, words.next()?];
    (*magic == MAGIC).then_some(name)
}

fn channel_header(name: Name) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    for (place, word) in header[8..].chunks_exact_mut(4).zip(name) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    header
}

impl Lending {
    /// Creates the state of a client's connection to the listener at `path`. `None` if `limit` is
    /// less than 64 KiB.
    pub(super) fn of_client(ends: &Arc<PeerState>, peer: &Peer, path: PathBuf, limit: usize) -> Option<Arc<Self>> {
        let side = Side::Client { path, opening: Opening::default() };
        Self::new(ends, peer, side, limit, SharedWord::ClientLendingLimit)
    }

    /// Creates the state of a server's connection, as [`of_client`](Self::of_client).
    pub(super) fn of_server(
        ends: &Arc<PeerState>,
        peer: &Peer,
        channels: &Arc<Channels>,
        limit: usize,
    ) -> Option<Arc<Self>> {
        let name = channels.new_name().ok()?;
        let side = Side::Server { channels: Arc::clone(channels), name };
        let lending = Self::new(ends, peer, side, limit, SharedWord::ServerLendingLimit)?;
        channels.waiting.lock().insert(name, Arc::downgrade(&lending));
        for (word, value) in
            [SharedWord::ConnectionNameWord2, SharedWord::ConnectionNameWord1, SharedWord::ConnectionNameWord0]
                .into_iter()
                .zip(name.into_iter().rev())
        {
            ends.rings.publish_word(word, value);
        }
        Some(lending)
    }

    fn new(ends: &Arc<PeerState>, peer: &Peer, side: Side, limit: usize, word: SharedWord) -> Option<Arc<Self>> {
        let units = u32::try_from(limit / UNIT).unwrap_or(u32::MAX);
        if units == 0 {
            return None;
        }
        ends.rings.publish_word(word, units);
        let uid = user_id(peer);
        Some(Arc::new(Lending {
            ends: Arc::clone(ends),
            peer: peer.clone(),
            side,
            limit: units as usize * UNIT,
            is_trusted: uid == Some(process::effective_user_id()) || uid == Some(0),
            channel: OnceLock::new(),
            sent: PiMutex::new("lent files", LockScope::Connection, SentFiles::default()),
            received: PiMutex::new("borrowed files", LockScope::Connection, ReceivedFiles::default()),
        }))
    }

    /// Returns the number of bytes that may be lent to the peer at a time.
    fn lendable(&self) -> usize {
        if !self.is_trusted {
            return 0;
        }
        let word = match self.side {
            Side::Client { .. } => SharedWord::ServerLendingLimit,
            Side::Server { .. } => SharedWord::ClientLendingLimit,
        };
        (self.ends.rings.published_word(word) as usize).saturating_mul(UNIT).min(self.limit)
    }

    /// Returns the channel if both sides have it. Otherwise opens the channel or, on the server,
    /// asks the client to open it.
    fn channel(&self) -> Option<&DescriptorFilterSocket> {
        let rings = &self.ends.rings;
        match &self.side {
            Side::Server { .. } if self.channel.get().is_none() => rings.publish_word(SharedWord::IsChannelWanted, 1),
            Side::Client { .. } if rings.published_word(SharedWord::IsChannelFound) == 0 => {
                self.open_channel();
                return None;
            }
            _ => {}
        }
        self.channel.get()
    }

    /// Opens the channel if the server wants to lend memory.
    #[inline]
    pub(super) fn open_if_wanted(&self) {
        if self.ends.rings.published_word(SharedWord::IsChannelWanted) != 0 && self.channel.get().is_none() {
            self.open_channel();
        }
    }

    #[cold]
    fn open_channel(&self) {
        let Side::Client { path, opening } = &self.side else { return };
        let name = [SharedWord::ConnectionNameWord0, SharedWord::ConnectionNameWord1, SharedWord::ConnectionNameWord2]
            .map(|word| self.ends.rings.published_word(word));
        if name[0] == 0 {
            return;
        }
        let Some(_turn) = opening.turn(&self.channel) else { return };
        let options = SocketOptions { refuse_descriptors: false, ..SocketOptions::default() };
        let Ok(fd) = socket::connect_unix_without_waiting(&Address::Unix(path.clone()), &options) else { return };
        let fd = DescriptorFilterSocket::for_unix_socket(fd);
        // Another server may listen at the path now, so the peer's credentials are compared.
        if credentials(fd.as_fd()) == self.peer
            && socket::send(fd.as_fd(), &channel_header(name), socket::WaitMode::Now).is_ok_and(|n| n == HEADER_BYTES)
        {
            // No other thread sets the channel while this thread has the right to open it.
            let _ = self.channel.set(fd);
        }
    }
}

impl MemoryLending for Lending {
    fn lend(&self, octets: &[u8]) -> Option<LentReference> {
        let limit = self.lendable();
        if limit == 0 {
            return None;
        }
        let file = SealedFile::containing(octets).filter(|file| file.length() <= limit)?;
        let channel = self.channel()?;
        let taken = self.ends.rings.published_word(match self.side {
            Side::Client { .. } => SharedWord::ServerTakenFileCount,
            Side::Server { .. } => SharedWord::ClientTakenFileCount,
        });
        let number = self.sent.lock().number(&file, channel.as_fd(), limit, taken)?;
        Some(LentReference { number, length: octets.len() as u64 })
    }

    fn take(&self, head: [&[u8]; 2], reference: LentReference) -> io::Result<Buffer> {
        let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let channel = self.channel.get().map(AsFd::as_fd).ok_or_else(|| wrong("the peer has opened no channel"))?;
        let mut received = self.received.lock();
        let before = received.taken();
        let file = received.find(reference.number, channel, self.limit)?;
        let taken = received.taken();
        drop(received);
        if taken != before {
            let word = match self.side {
                Side::Client { .. } => SharedWord::ClientTakenFileCount,
                Side::Server { .. } => SharedWord::ServerTakenFileCount,
            };
            self.ends.rings.publish_word(word, taken as u32);
        }
        let length = usize::try_from(reference.length).map_err(|_| wrong("the lent memory has fewer bytes"))?;
        file.message(head, length).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => wrong("the message names more bytes than the peer has lent"),
            _ => error,
        })
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        if let Side::Server { channels, name } = &self.side {
            channels.waiting.lock().remove(name);
        }
    }
}

#[cfg(test)]
mod tests;
