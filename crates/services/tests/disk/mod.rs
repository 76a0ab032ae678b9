//! A simulated disk, which can lose data that was not synced, run out of room, fail to read, and
//! stop at a sync.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use redb::{BackendError, StorageBackend};

const SECTOR: usize = 512;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

pub(crate) fn cuts(usual: usize) -> usize {
    std::env::var("CORELANE_CUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[derive(Clone, Debug)]
enum Operation {
    Write(u64, Vec<u8>),
    SetLength(u64),
    Sync,
}

/// Number of files on a disk: a store's database and its log.
const FILES: usize = 2;
pub(crate) const DATABASE: usize = 0;
pub(crate) const LOG: usize = 1;

/// The time after which a stopped sync, or the wait for a failed read, ends with an error.
const MAX_HOLD: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct Contents {
    images: [Vec<u8>; FILES],
    bases: [Vec<u8>; FILES],
    log: Vec<(usize, Operation)>,
    room: Option<usize>,
    single_failure: Option<usize>,
    single_failed_read: Option<usize>,
    /// The file for which the disk has no room.
    full_file: Option<usize>,
    read: usize,
    locked: [bool; FILES],
    /// The file whose syncs wait.
    held: Option<usize>,
    stopped_syncs: usize,
    is_expired: bool,
}

/// A simulated disk with two files. All clones are one disk.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<(Mutex<Contents>, Condvar)>);

#[derive(Debug)]
pub(crate) struct DiskFile {
    disk: Disk,
    file: usize,
    is_locked: AtomicBool,
}

impl Default for Disk {
    fn default() -> Self {
        Disk::with_images(<[Vec<u8>; FILES]>::default())
    }
}

impl Disk {
    fn with_images(images: [Vec<u8>; FILES]) -> Self {
        let contents = Mutex::new("disk", LockScope::Orb, Contents { images, ..Contents::default() });
        Disk(Arc::new((contents, Condvar::new())))
    }

    fn contents(&self) -> corelane_sys::lock::MutexGuard<'_, Contents> {
        self.0.0.lock()
    }

    pub(crate) fn files(&self) -> (DiskFile, DiskFile) {
        let open = |file| DiskFile { disk: self.clone(), file, is_locked: AtomicBool::new(false) };
        (open(DATABASE), open(LOG))
    }

    /// Makes the syncs of a file wait, before they have an effect, for
    /// [`release_syncs`](Self::release_syncs).
    pub(crate) fn hold_syncs(&self, file: usize) {
        self.contents().held = Some(file);
    }

    /// Waits until a sync has begun to wait.
    pub(crate) fn wait_for_stopped_sync(&self) {
        let mut contents = self.contents();
        while contents.stopped_syncs == 0 {
            contents = self.0.1.wait(contents);
        }
    }

    /// Lets all waiting syncs continue. Panics if one of them has waited for [`MAX_HOLD`].
    pub(crate) fn release_syncs(&self) {
        let mut contents = self.contents();
        assert!(!contents.is_expired, "a thread waited for a stopped sync");
        contents.held = None;
        self.0.1.notify_all();
    }

    fn stop_sync(&self, file: usize) {
        let end = Monotonic::now() + MAX_HOLD;
        let mut contents = self.contents();
        contents.stopped_syncs += 1;
        self.0.1.notify_all();
        while contents.held == Some(file) && !contents.is_expired {
            if end.is_past() {
                contents.is_expired = true;
                break;
            }
            contents = self.0.1.wait_until(contents, Some(end)).0;
        }
        contents.stopped_syncs -= 1;
    }

    /// Releases the locks, as the end of a killed process does.
    pub(crate) fn release_locks(&self) {
        self.contents().locked = [false; FILES];
    }

    /// Begins a new log of operations. A later [`cut`](Self::cut) loses none of the earlier
    /// operations.
    pub(crate) fn start_log(&self) {
        let mut contents = self.contents();
        contents.bases = contents.images.clone();
        contents.log.clear();
    }

    pub(crate) fn log_len(&self) -> usize {
        self.contents().log.len()
    }

    pub(crate) fn octets_read(&self) -> usize {
        self.contents().read
    }

    /// Makes each write, sync and change of length after this number of operations fail. `None`
    /// ends the failures.
    pub(crate) fn fail_after(&self, operations: Option<usize>) {
        self.contents().room = operations;
    }

    /// Makes each write and change of length of this file fail. `None` ends the failures.
    pub(crate) fn fail_file(&self, file: Option<usize>) {
        self.contents().full_file = file;
    }

    /// Makes one write, sync or change of length fail, after this number of such operations.
    pub(crate) fn fail_once_after(&self, operations: usize) {
        self.contents().single_failure = Some(operations);
    }

    /// Makes one read fail, after this number of reads. `None` cancels the failure.
    pub(crate) fn fail_one_read_after(&self, reads: Option<usize>) {
        self.contents().single_failed_read = reads;
    }

    /// Waits until the read of [`fail_one_read_after`](Self::fail_one_read_after) has failed.
    pub(crate) fn wait_for_failed_read(&self) {
        let mut contents = self.contents();
        let end = Monotonic::now() + MAX_HOLD;
        while contents.single_failed_read.is_some() {
            assert!(!end.is_past(), "no read has failed");
            contents = self.0.1.wait_until(contents, Some(end)).0;
        }
    }

    /// Overwrites the beginning of a store's log.
    pub(crate) fn damage_log(&self) {
        self.contents().images[LOG][..64].fill(0xff);
    }

    pub(crate) fn cut(&self, count: usize, random: &mut Random) -> Disk {
        let contents = self.contents();
        let log = &contents.log[..count];
        let mut images = contents.bases.clone();
        // A sync of one file does not sync the other.
        let synced: [usize; FILES] = std::array::from_fn(|file| {
            let is_sync =
                |(other, operation): &(usize, Operation)| *other == file && matches!(operation, Operation::Sync);
            log.iter().rposition(is_sync).map_or(0, |last| last + 1)
        });
        for (index, (file, operation)) in log.iter().enumerate() {
            let image = &mut images[*file];
            let is_last = index + 1 == count;
            if index < synced[*file] {
                run(image, operation);
            } else if let (true, Operation::Write(offset, data)) = (is_last, operation) {
                tear(image, *offset, data, random);
            } else if random.below(2) == 0 {
                run(image, operation);
            }
        }
        Disk::with_images(images)
    }

    fn run(&self, file: usize, operation: Operation) -> io::Result<()> {
        let mut contents = self.contents();
        match contents.single_failure.take() {
            Some(0) => return Err(io::Error::other("one failure")),
            Some(more) => contents.single_failure = Some(more - 1),
            None => {}
        }
        if contents.full_file == Some(file) && !matches!(operation, Operation::Sync) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match &mut contents.room {
            Some(0) => return Err(io::ErrorKind::StorageFull.into()),
            Some(room) => *room -= 1,
            None => {}
        }
        run(&mut contents.images[file], &operation);
        contents.log.push((file, operation));
        Ok(())
    }
}

fn run(image: &mut Vec<u8>, operation: &Operation) {
    match operation {
        Operation::Write(offset, data) => write(image, *offset as usize, data),
        Operation::SetLength(length) => image.resize(*length as usize, 0),
        Operation::Sync => {}
    }
}

fn write(image: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if image.len() < offset + data.len() {
        image.resize(offset + data.len(), 0);
    }
    image[offset..offset + data.len()].copy_from_slice(data);
}

fn tear(image: &mut Vec<u8>, offset: u64, data: &[u8], random: &mut Random) {
    let mut start = 0;
    while start < data.len() {
        let end = data.len().min(start + SECTOR - (offset as usize + start) % SECTOR);
        if random.below(2) == 0 {
            write(image, offset as usize + start, &data[start..end]);
        }
        start = end;
    }
}

impl StorageBackend for DiskFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.contents().images[self.file].len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut contents = self.disk.contents();
        contents.read += out.len();
        match contents.single_failed_read.take() {
            Some(0) => {
                self.disk.0.1.notify_all();
                return Err(io::Error::other("a failed read"));
            }
            Some(more) => contents.single_failed_read = Some(more - 1),
            None => {}
        }
        let range = offset as usize..offset as usize + out.len();
        out.copy_from_slice(contents.images[self.file].get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.run(self.file, Operation::SetLength(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.stop_sync(self.file);
        self.disk.run(self.file, Operation::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.run(self.file, Operation::Write(offset, data.to_vec()))
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        assert_eq!((start, end), (Bound::Unbounded, Bound::Unbounded));
        let is_free = !std::mem::replace(&mut self.disk.contents().locked[self.file], true);
        self.is_locked.store(is_free, Ordering::Relaxed);
        Ok(is_free)
    }

    fn close(&self) -> io::Result<()> {
        if self.is_locked.swap(false, Ordering::Relaxed) {
            self.disk.contents().locked[self.file] = false;
        }
        Ok(())
    }
}
