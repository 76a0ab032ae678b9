//! Where octets from a connection wait until they are a message.
//!
//! Up to 64 KiB it is ordinary memory that is reused; beyond that memory is committed only as octets arrive, so a header that
//! announces 60 MiB costs nothing until the 60 MiB come.

/// What a fresh buffer takes in one read.
const FIRST: usize = 16 * 1024;
/// How far ahead of the octets that are there memory is made ready, for a message that announces more.
const AHEAD: usize = 256 * 1024;

/// Octets received and not yet consumed, contiguous.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer {
    octets: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReceiveBuffer {
    pub(crate) const fn new() -> Self {
        ReceiveBuffer { octets: Vec::new(), start: 0, end: 0 }
    }

    /// What is there.
    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.octets[self.start..self.end]
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Room for the next read, never empty. `wanted` octets in all are expected from the first unread one.
    #[inline]
    pub(crate) fn room(&mut self, wanted: usize) -> &mut [u8] {
        if self.start + wanted > self.octets.len() || self.end == self.octets.len() {
            self.make_room(wanted);
        }
        &mut self.octets[self.end..]
    }

    #[cold]
    fn make_room(&mut self, wanted: usize) {
        self.octets.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let most = self.end + AHEAD.max(self.end);
        let size = wanted.min(most).max(self.end + 1).max(FIRST);
        if size > self.octets.len() {
            self.octets.resize(size, 0);
        }
    }

    /// The first `count` octets of the room now hold something.
    #[inline]
    pub(crate) fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.octets.len());
    }

    /// Forgets the first `count` unread octets.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Puts octets behind those that are there.
    pub(crate) fn append(&mut self, octets: &[u8]) {
        let have = self.end - self.start;
        self.room(have + octets.len())[..octets.len()].copy_from_slice(octets);
        self.filled(octets.len());
    }

    /// Moves everything after the first `count` unread octets to a buffer of its own.
    #[cold]
    pub(crate) fn split_after(&mut self, count: usize, mut rest: ReceiveBuffer) -> ReceiveBuffer {
        let from = (self.start + count).min(self.end);
        let surplus = self.end - from;
        rest.clear();
        rest.room(surplus)[..surplus].copy_from_slice(&self.octets[from..self.end]);
        rest.filled(surplus);
        self.end = from;
        rest
    }

    pub(crate) fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Everything unread, as an owner that can be shared.
    #[cold]
    pub(crate) fn into_octets(mut self) -> corelane_wire::Octets {
        self.octets.truncate(self.end);
        let unread = self.start..self.end;
        let whole = corelane_wire::Octets::from(self.octets);
        whole.part(unread).unwrap_or_default()
    }

    /// Memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.octets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(buffer: &mut ReceiveBuffer, octets: &[u8], wanted: usize) {
        buffer.room(wanted)[..octets.len()].copy_from_slice(octets);
        buffer.filled(octets.len());
    }

    #[test]
    fn octets_come_out_in_order() {
        let mut buffer = ReceiveBuffer::new();
        fill(&mut buffer, b"abcdef", 12);
        buffer.consume(2);
        assert_eq!(buffer.unread(), b"cdef");
        let rest = buffer.split_after(1, ReceiveBuffer::new());
        assert_eq!((buffer.unread(), rest.unread()), (&b"c"[..], &b"def"[..]));
        buffer.consume(1);
        assert!(buffer.is_empty());
    }

    #[test]
    fn an_announced_length_commits_no_memory() {
        let mut buffer = ReceiveBuffer::new();
        fill(&mut buffer, &[1; 12], 12);
        buffer.room(60 << 20);
        assert!(buffer.capacity() <= AHEAD + 12);
        let mut arrived = 12;
        while arrived < 1 << 20 {
            let room = buffer.room(60 << 20).len();
            buffer.filled(room);
            arrived += room;
            assert!(buffer.capacity() <= 2 * arrived + AHEAD);
        }
    }
}
