//! A storage backend that keeps writes in memory, so that a database can be opened, repaired and
//! read without a change of its file.

use std::collections::BTreeMap;
use std::io;

use corelane_sys::lock::{LockScope, Mutex};
use redb::StorageBackend;

use super::backend::FileAccess;

const PAGE_SIZE: usize = 4096;

#[derive(Debug)]
pub(super) struct Preview {
    file: FileAccess,
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    length: u64,
    /// Number of bytes of the file, from its start, that the view shows. Smaller than the file
    /// after the view was shortened.
    file_length: u64,
    written: BTreeMap<u64, Box<[u8; PAGE_SIZE]>>,
}

impl Preview {
    pub(super) fn new(file: FileAccess) -> io::Result<Self> {
        let length = file.len()?;
        let pages = Pages { length, file_length: length, written: BTreeMap::new() };
        Ok(Preview { file, pages: Mutex::new("store preview", LockScope::Orb, pages) })
    }

    fn page_of_file(&self, number: u64, file_length: u64) -> io::Result<Box<[u8; PAGE_SIZE]>> {
        let mut page = Box::new([0; PAGE_SIZE]);
        let start = number.saturating_mul(PAGE_SIZE as u64);
        let there = file_length.saturating_sub(start).min(PAGE_SIZE as u64) as usize;
        if there > 0
            && let Some(shown) = page.get_mut(..there)
        {
            self.file.read(start, shown)?;
        }
        Ok(page)
    }
}

/// Splits a byte range of a file at page boundaries. Each part is the page number, the offset in
/// the page, and the range of indices in the caller's buffer.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= length {
            return None;
        }
        let at = offset.saturating_add(done as u64);
        let within = (at % PAGE_SIZE as u64) as usize;
        let count = (PAGE_SIZE - within).min(length - done);
        let part = (at / PAGE_SIZE as u64, within, done..done + count);
        done += count;
        Some(part)
    })
}

impl StorageBackend for Preview {
    fn len(&self) -> io::Result<u64> {
        Ok(self.pages.lock().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let pages = self.pages.lock();
        if offset.saturating_add(out.len() as u64) > pages.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (number, within, range) in parts(offset, out.len()) {
            let from_file;
            let page = match pages.written.get(&number) {
                Some(page) => page,
                None => {
                    from_file = self.page_of_file(number, pages.file_length)?;
                    &from_file
                }
            };
            let count = range.len();
            out[range].copy_from_slice(&page[within..within + count]);
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut pages = self.pages.lock();
        pages.length = length;
        pages.file_length = pages.file_length.min(length);
        pages.written.split_off(&length.div_ceil(PAGE_SIZE as u64));
        // Bytes after the new end must be zero if the view grows again.
        let within = (length % PAGE_SIZE as u64) as usize;
        if within > 0
            && let Some(page) = pages.written.get_mut(&(length / PAGE_SIZE as u64))
        {
            page[within..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut pages = self.pages.lock();
        pages.length = pages.length.max(offset.saturating_add(data.len() as u64));
        for (number, within, range) in parts(offset, data.len()) {
            if !pages.written.contains_key(&number) {
                let page = self.page_of_file(number, pages.file_length)?;
                pages.written.insert(number, page);
            }
            let count = range.len();
            if let Some(page) = pages.written.get_mut(&number) {
                page[within..within + count].copy_from_slice(&data[range]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;

    use super::super::backend::StoreFile;
    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        SetLength(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let offset = 0..20_000_u64;
        prop_oneof![
            (offset.clone(), prop::collection::vec(any::<u8>(), 0..9_000))
                .prop_map(|(offset, data)| Step::Write(offset, data)),
            offset.prop_map(Step::SetLength),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_view_equals_a_changed_file(
            file in prop::collection::vec(any::<u8>(), 0..15_000),
            steps in prop::collection::vec(step(), 0..12),
        ) {
            let backend = InMemoryBackend::new();
            backend.set_len(file.len() as u64).unwrap();
            backend.write(0, &file).unwrap();
            let source = StoreFile::lock(Box::new(backend), None).unwrap();
            let preview = Preview::new(FileAccess::new(&source)).unwrap();
            let mut expected = file.clone();
            for step in steps {
                match step {
                    Step::Write(offset, data) => {
                        let end = offset as usize + data.len();
                        if expected.len() < end {
                            expected.resize(end, 0);
                        }
                        expected[offset as usize..end].copy_from_slice(&data);
                        preview.write(offset, &data).unwrap();
                    }
                    Step::SetLength(length) => {
                        expected.resize(length as usize, 0);
                        preview.set_len(length).unwrap();
                    }
                }
                let mut found = vec![0; preview.len().unwrap() as usize];
                preview.read(0, &mut found).unwrap();
                prop_assert_eq!(&found, &expected);
            }
            let mut left = vec![0; source.len().unwrap() as usize];
            source.read(0, &mut left).unwrap();
            prop_assert_eq!(left, file);
            prop_assert!(preview.read(expected.len() as u64, &mut [0]).is_err());
        }
    }
}
