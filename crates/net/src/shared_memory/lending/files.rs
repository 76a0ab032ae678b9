//! The files that a side has passed to its peer, and the files that it has received.
//!
//! Each file has one of [`SLOTS`] slots at the receiver. The sender chooses the slot, and says
//! which other slots the receiver must empty first. So the receiver decides nothing, and a sender
//! that breaks a limit is at fault. Files and messages arrive in the order in which they were sent,
//! so a message names a file that the receiver has, or that is in the channel.
//!
//! | bytes of an announcement | content, little-endian |
//! |---|---|
//! | 0 to 7 | number of the file: 1, 2 and so on |
//! | 8 to 15 | size of the file in bytes |
//! | 16 to 19 | its slot |
//! | 20 to 23 | slots to empty before, one bit each |
//!
//! The file's descriptor is passed with each announcement. A file whose slot is emptied uses memory
//! until the receiver has taken the announcement that empties the slot. So the receiver publishes
//! the number of the last announcement that it has taken.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use corelane_sys::deferred_close;
use corelane_sys::sealed::{LentFile, SealedFile};
use corelane_sys::socket::{self, WaitMode};

pub(super) const SLOTS: usize = 16;
const ANNOUNCEMENT_BYTES: usize = 24;
/// Maximum number of announcements that one message may need. The channel's socket has room for
/// fewer, so no honest peer exceeds it.
const MAX_ANNOUNCEMENTS: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Announcement {
    number: u64,
    length: u64,
    slot: u32,
    emptied: u32,
}

impl Announcement {
    fn to_bytes(self) -> [u8; ANNOUNCEMENT_BYTES] {
        let mut bytes = [0; ANNOUNCEMENT_BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.slot.to_le_bytes());
        bytes[20..].copy_from_slice(&self.emptied.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; ANNOUNCEMENT_BYTES]) -> Option<Self> {
        let (number, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (slot, rest) = rest.split_first_chunk()?;
        let (emptied, _) = rest.split_first_chunk()?;
        Some(Announcement {
            number: u64::from_le_bytes(*number),
            length: u64::from_le_bytes(*length),
            slot: u32::from_le_bytes(*slot),
            emptied: u32::from_le_bytes(*emptied),
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct SentFiles {
    /// The file in each of the peer's slots. The list is empty before the first file.
    slots: Vec<Option<SentFile>>,
    announced: u64,
    uses: u64,
    /// The number of the announcement at which the peer empties a slot, and the size of the slot's
    /// file. The size counts against the limit until the peer has taken the announcement.
    given_way: VecDeque<(u64, usize)>,
    /// True after the socket has taken a part of an announcement. The channel is then unusable.
    is_cut: bool,
}

#[derive(Debug)]
struct SentFile {
    file: Weak<SealedFile>,
    id: u64,
    number: u64,
    length: usize,
    last_use: u64,
}

impl SentFiles {
    /// Returns the number of a file for the peer, and passes the file if the peer does not have it.
    /// The peer never has more than `limit` bytes of files. `taken` are the lowest bits of the
    /// number of the last announcement that the peer has taken. Returns `None` if the file cannot
    /// be passed now.
    pub(super) fn number(
        &mut self,
        file: &Arc<SealedFile>,
        channel: BorrowedFd<'_>,
        limit: usize,
        taken: u32,
    ) -> Option<u64> {
        self.uses += 1;
        if let Some(sent) = self.slots.iter_mut().flatten().find(|sent| sent.id == file.id()) {
            sent.last_use = self.uses;
            return Some(sent.number);
        }
        self.pass(file, channel, limit, taken)
    }

    #[cold]
    fn pass(&mut self, file: &Arc<SealedFile>, channel: BorrowedFd<'_>, limit: usize, taken: u32) -> Option<u64> {
        // The check bounds the number of files in the channel's socket while the peer takes
        // nothing.
        let untaken = u64::from((self.announced as u32).wrapping_sub(taken));
        if self.is_cut || untaken >= SLOTS as u64 {
            return None;
        }
        self.given_way.retain(|(number, _)| *number > self.announced.saturating_sub(untaken));
        let limit = limit.saturating_sub(self.given_way.iter().map(|(_, length)| length).sum());
        if file.length() > limit {
            return None;
        }
        self.slots.resize_with(SLOTS, || None);
        let emptied = self.choose_emptied(file.length(), limit);
        let is_free = |slot: &usize| self.slots[*slot].is_none() || emptied & 1 << slot != 0;
        let slot = (0..SLOTS).find(is_free)?;
        let number = self.announced + 1;
        let announcement = Announcement { number, length: file.length() as u64, slot: slot as u32, emptied };
        match socket::send_with_descriptor(channel, &announcement.to_bytes(), file.as_fd(), WaitMode::Now) {
            Ok(ANNOUNCEMENT_BYTES) => {}
            Ok(_) => {
                self.is_cut = true;
                return None;
            }
            // The channel's socket is full or closed, or too many descriptors of this user are in
            // sockets. The payload is then copied.
            Err(_) => return None,
        }
        self.announced = number;
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if emptied & 1 << index != 0
                && let Some(sent) = slot.take()
            {
                self.given_way.push_back((number, sent.length));
            }
        }
        let (id, length, last_use) = (file.id(), file.length(), self.uses);
        self.slots[slot] = Some(SentFile { file: Arc::downgrade(file), id, number, length, last_use });
        Some(number)
    }

    /// Chooses the slots that the peer must empty before it gets a file of `length` bytes: the
    /// slots of files that this process has dropped, and as many of the least recently used slots
    /// as needed.
    fn choose_emptied(&self, length: usize, limit: usize) -> u32 {
        let mut kept: Vec<(usize, &SentFile)> =
            self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.as_ref()?))).collect();
        let mut emptied = 0u32;
        kept.retain(|(index, sent)| {
            let is_alive = sent.file.strong_count() > 0;
            emptied |= u32::from(!is_alive) << index;
            is_alive
        });
        kept.sort_by_key(|(_, sent)| std::cmp::Reverse(sent.last_use));
        while kept.len() == SLOTS || kept.iter().map(|(_, sent)| sent.length).sum::<usize>() + length > limit {
            let Some((index, _)) = kept.pop() else { break };
            emptied |= 1 << index;
        }
        emptied
    }
}

#[derive(Debug, Default)]
pub(super) struct ReceivedFiles {
    /// The file in each of this side's slots. The list is empty before the first file.
    slots: Vec<Option<ReceivedFile>>,
    announced: u64,
    bytes: usize,
}

#[derive(Debug)]
struct ReceivedFile {
    number: u64,
    file: LentFile,
}

impl ReceivedFiles {
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of the last announcement that was taken.
    pub(super) fn taken(&self) -> u64 {
        self.announced
    }

    /// Returns the file with this number. Receives files from the channel up to this one, but does
    /// not wait.
    ///
    /// # Errors
    /// `InvalidData` if the peer has not passed the file, or has broken a rule.
    pub(super) fn find(&mut self, number: u64, channel: BorrowedFd<'_>, limit: usize) -> io::Result<LentFile> {
        for _ in 0..MAX_ANNOUNCEMENTS {
            if let Some(received) = self.slots.iter().flatten().find(|received| received.number == number) {
                return Ok(received.file.clone());
            }
            if number <= self.announced {
                return Err(wrong("the message names lent memory that the peer has taken back"));
            }
            self.receive(channel, limit)?;
        }
        Err(wrong("the peer passes lent memory without end"))
    }

    #[cold]
    fn receive(&mut self, channel: BorrowedFd<'_>, limit: usize) -> io::Result<()> {
        let mut bytes = [0; ANNOUNCEMENT_BYTES];
        let (count, passed) = match socket::recv_with_descriptor(channel, &mut bytes, WaitMode::Now) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(wrong("the message names lent memory that the peer has not passed"));
            }
            other => other?,
        };
        let Some(passed) = passed else { return Err(wrong("the peer has announced lent memory and passed none")) };
        let announced = Announcement::parse(&bytes).filter(|_| count == ANNOUNCEMENT_BYTES);
        let place = announced.and_then(|announced| self.make_room(announced, limit));
        let Some((announced, slot, length)) = place else {
            deferred_close::close(passed);
            return Err(wrong("the peer lends more memory than it may"));
        };
        let file = LentFile::new(SealedFile::open(passed, length)?);
        self.bytes += length;
        self.announced = announced.number;
        self.slots[slot] = Some(ReceivedFile { number: announced.number, file });
        Ok(())
    }

    /// Empties the announced slots. Returns the announcement with its slot and its size as numbers
    /// of type `usize`. Returns `None` if the peer breaks a rule.
    fn make_room(&mut self, announced: Announcement, limit: usize) -> Option<(Announcement, usize, usize)> {
        let (slot, length) = (announced.slot as usize, usize::try_from(announced.length).ok()?);
        if announced.number != self.announced + 1 || slot >= SLOTS || length == 0 {
            return None;
        }
        self.slots.resize_with(SLOTS, || None);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if announced.emptied & 1 << index != 0
                && let Some(emptied) = slot.take()
            {
                self.bytes -= emptied.file.length();
            }
        }
        (self.slots[slot].is_none() && length <= limit.saturating_sub(self.bytes)).then_some((announced, slot, length))
    }
}

fn wrong(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
