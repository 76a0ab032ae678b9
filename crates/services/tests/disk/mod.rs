//! A simulated disk, which can lose data that was not synced, and run out of room.

use std::io;
use std::sync::Arc;

use corelane_sys::lock::{LockScope, Mutex};
use redb::StorageBackend;

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

#[derive(Debug, Default)]
struct Contents {
    image: Vec<u8>,
    base: Vec<u8>,
    log: Vec<Operation>,
    room: Option<usize>,
    read: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<Contents>>);

impl Default for Disk {
    fn default() -> Self {
        Disk::with_image(Vec::new())
    }
}

impl Disk {
    fn with_image(image: Vec<u8>) -> Self {
        Disk(Arc::new(Mutex::new("disk", LockScope::Orb, Contents { image, ..Contents::default() })))
    }

    pub(crate) fn opener(&self) -> impl Fn() -> Disk + Send + Sync + 'static {
        let disk = self.clone();
        move || disk.clone()
    }

    /// Begins a new log of operations. Earlier operations are never lost.
    pub(crate) fn start_log(&self) {
        let mut contents = self.0.lock();
        contents.base = contents.image.clone();
        contents.log.clear();
    }

    pub(crate) fn log_len(&self) -> usize {
        self.0.lock().log.len()
    }

    pub(crate) fn octets_read(&self) -> usize {
        self.0.lock().read
    }

    /// Makes each write, sync and change of length after this number of operations fail. `None`
    /// ends the failures.
    pub(crate) fn fail_after(&self, operations: Option<usize>) {
        self.0.lock().room = operations;
    }

    pub(crate) fn cut(&self, count: usize, random: &mut Random) -> Disk {
        let contents = self.0.lock();
        let log = &contents.log[..count];
        let synced = log.iter().rposition(|operation| matches!(operation, Operation::Sync)).map_or(0, |last| last + 1);
        let mut image = contents.base.clone();
        for operation in &log[..synced] {
            run(&mut image, operation);
        }
        for (index, operation) in log[synced..].iter().enumerate() {
            let is_last = synced + index + 1 == count;
            if let (true, Operation::Write(offset, data)) = (is_last, operation) {
                tear(&mut image, *offset, data, random);
            } else if random.below(2) == 0 {
                run(&mut image, operation);
            }
        }
        Disk::with_image(image)
    }

    fn run(&self, operation: Operation) -> io::Result<()> {
        let mut contents = self.0.lock();
        match &mut contents.room {
            Some(0) => return Err(io::ErrorKind::StorageFull.into()),
            Some(room) => *room -= 1,
            None => {}
        }
        run(&mut contents.image, &operation);
        contents.log.push(operation);
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

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().image.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut contents = self.0.lock();
        contents.read += out.len();
        let range = offset as usize..offset as usize + out.len();
        out.copy_from_slice(contents.image.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.run(Operation::SetLength(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.run(Operation::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.run(Operation::Write(offset, data.to_vec()))
    }
}
