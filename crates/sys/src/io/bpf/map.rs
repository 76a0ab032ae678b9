//! BPF maps: tables that a BPF program in the kernel and this process share.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::{fs, io};

use super::{Command, address, enter, object_name, own};

/// The structure of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// A hash table with any key; its memory is allocated in advance.
    Hash = 1,
    /// An array with a `u32` index. Every entry exists from the start, filled with zeros.
    Array = 2,
    /// An array with a `u32` index and a value for each possible processor.
    PerCpuArray = 6,
    /// An array with a `u32` index. Each value is a map with the kind, the sizes and (for arrays)
    /// the number of entries of the map given to [`Map::create_map_of_maps`].
    ArrayOfMaps = 12,
    /// An array whose index is the number of a processor. The value is the maximum number of frames
    /// in the queue to a kernel thread on this processor.
    CpuMap = 16,
    /// An array with a `u32` index. The value is the descriptor of an AF_XDP socket.
    XskMap = 17,
}

/// A map in the kernel. Numbers in keys and values have the machine's byte order.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    kind: MapKind,
    key_size: usize,
    /// Size in bytes of a value in one processor's copy.
    value_size: usize,
    /// Number of values that an update or look-up transfers: one for each processor, or 1.
    copies: usize,
}

#[repr(C)]
#[derive(Default)]
struct MapAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

#[repr(C)]
struct ElementAttributes {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Map {
    /// Creates a map for at most `max_entries` entries. The sizes of keys and values are in bytes.
    ///
    /// # Errors
    /// Any error that the kernel returns, for example `PermissionDenied` without `CAP_BPF`.
    pub fn create(kind: MapKind, name: &str, key_size: usize, value_size: usize, max_entries: u32) -> io::Result<Self> {
        Self::create_with(kind, name, (key_size, value_size), max_entries, 0)
    }

    /// Creates an array of `max_entries` maps that have the kind, the sizes and (for arrays) the
    /// number of entries of `inner`.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_map_of_maps(name: &str, inner: &Self, max_entries: u32) -> io::Result<Self> {
        let inner = inner.fd.as_raw_fd().cast_unsigned();
        Self::create_with(MapKind::ArrayOfMaps, name, (4, 4), max_entries, inner)
    }

    fn create_with(
        kind: MapKind,
        name: &str,
        (key_size, value_size): (usize, usize),
        max_entries: u32,
        inner_map_fd: u32,
    ) -> io::Result<Self> {
        let size = |size: usize| u32::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let mut attributes = MapAttributes {
            map_type: kind as u32,
            key_size: size(key_size)?,
            value_size: size(value_size)?,
            max_entries,
            inner_map_fd,
            map_name: object_name(name),
            ..MapAttributes::default()
        };
        let copies = if kind == MapKind::PerCpuArray { possible_processors()? } else { 1 };
        // SAFETY: the attributes belong to the command and hold no addresses.
        let fd = unsafe { enter(Command::MapCreate, &mut attributes) }?;
        // SAFETY: the kernel has just returned the descriptor.
        let fd = unsafe { own(fd) };
        Ok(Self { fd, kind, key_size, value_size, copies })
    }

    /// Returns the kernel's number of the map. The names of a [`MapKind::CpuMap`]'s kernel threads
    /// contain it.
    ///
    /// # Errors
    /// Any error that the kernel returns.
    pub fn id(&self) -> io::Result<u32> {
        // The beginning of `struct bpf_map_info`: kind and number.
        let mut info = [0_u32; 2];
        let mut attributes = super::InfoAttributes {
            bpf_fd: self.fd.as_raw_fd().cast_unsigned(),
            info_len: u32::try_from(size_of_val(&info)).unwrap_or(0),
            info: address(&raw mut info),
        };
        // SAFETY: the attributes belong to the command; the kernel writes at most `info_len`
        // bytes into `info`, which lives through the call and consists of integers.
        unsafe { enter(Command::ObjectInfo, &mut attributes) }?;
        Ok(info[1])
    }

    /// Returns the structure of the map.
    #[must_use]
    pub fn kind(&self) -> MapKind {
        self.kind
    }

    /// Sets the value of `key`. For a [`MapKind::PerCpuArray`], `value` consists of one value for
    /// each possible processor, in the order of the processors' numbers. Each of them is padded to
    /// a multiple of 8 bytes.
    ///
    /// # Errors
    /// `InvalidInput` if `key` or `value` has a wrong size; any error that the kernel returns, for
    /// example because the map is full.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() != self.key_size || value.len() != self.transfer_size() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.element(Command::MapUpdate, key, address(value.as_ptr()))
    }

    /// Sets the value at `index`, for a map whose keys and values have 32 bits.
    ///
    /// # Errors
    /// As for [`update`](Self::update).
    pub fn update_u32(&self, index: u32, value: u32) -> io::Result<()> {
        self.update(&index.to_ne_bytes(), &value.to_ne_bytes())
    }

    /// Stores the map `inner` at `index` of an array of maps.
    ///
    /// # Errors
    /// As for [`update`](Self::update); `InvalidInput` if `inner` differs from the map given to
    /// [`create_map_of_maps`](Self::create_map_of_maps) in kind or sizes, or as an array in the
    /// number of entries.
    pub fn update_inner_map(&self, index: u32, inner: &Self) -> io::Result<()> {
        self.update_u32(index, inner.fd.as_raw_fd().cast_unsigned())
    }

    /// Returns the value of `key`, or `None` if the key has no entry. For a
    /// [`MapKind::PerCpuArray`] the result consists of one value for each possible processor, in
    /// the order of the processors' numbers. Each of them is padded to a multiple of 8 bytes.
    ///
    /// # Errors
    /// `InvalidInput` if the key has a wrong size; any other error that the kernel returns.
    pub fn look_up(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if key.len() != self.key_size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut value = vec![0; self.transfer_size()];
        match self.element(Command::MapLookup, key, address(value.as_mut_ptr())) {
            Ok(()) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the numbers that make up the value at `index`, each summed over all processors. The
    /// value must consist of numbers of 64 bits.
    ///
    /// # Errors
    /// As for [`look_up`](Self::look_up); `NotFound` for an index without an entry.
    pub fn sum_over_processors(&self, index: u32) -> io::Result<Vec<u64>> {
        let value = self.look_up(&index.to_ne_bytes())?.ok_or(io::ErrorKind::NotFound)?;
        let mut sums = vec![0_u64; self.value_size / 8];
        for copy in value.chunks_exact(self.copy_size()) {
            let numbers = copy.chunks_exact(8).map(|number| u64::from_ne_bytes(number.try_into().unwrap_or_default()));
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.wrapping_add(number));
        }
        Ok(sums)
    }

    /// Removes an entry. Returns true if the entry existed.
    ///
    /// # Errors
    /// `InvalidInput` if the key has a wrong size or the map's entries cannot be removed; any other
    /// error that the kernel returns.
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        if key.len() != self.key_size {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match self.element(Command::MapDelete, key, 0) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn element(&self, command: Command, key: &[u8], value: u64) -> io::Result<()> {
        let mut attributes = ElementAttributes {
            map_fd: self.fd.as_raw_fd().cast_unsigned(),
            padding: 0,
            key: address(key.as_ptr()),
            value,
            flags: 0,
        };
        // SAFETY: the attributes belong to the command. The callers have ensured that the key has
        // the map's size, and that `value` is 0 for a deletion and otherwise the address of
        // `transfer_size` bytes, which are writable for a look-up.
        unsafe { enter(command, &mut attributes) }.map(drop)
    }

    fn copy_size(&self) -> usize {
        if self.kind == MapKind::PerCpuArray { self.value_size.next_multiple_of(8) } else { self.value_size }
    }

    fn transfer_size(&self) -> usize {
        self.copy_size() * self.copies
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the maximum number of processors of this machine, including processors that may be
/// plugged in later.
///
/// # Errors
/// If `/sys/devices/system/cpu/possible` cannot be read, or is not a list of numbers.
pub fn possible_processors() -> io::Result<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    highest_processor(&text).map(|highest| highest + 1).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn highest_processor(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::unavailable_reason;
    use super::*;

    #[test]
    fn the_highest_processor_ends_the_list() {
        assert_eq!(["0\n", "0-3\n", "0-3,8\n"].map(highest_processor), [Some(0), Some(3), Some(8)]);
        assert_eq!(highest_processor("\n"), None);
    }

    #[test]
    fn entries_are_set_found_and_removed() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let map = Map::create(MapKind::Hash, "hash", 4, 8, 2).unwrap();
        let (key, value) = ([1, 2, 3, 4], [7; 8]);
        assert_eq!(map.look_up(&key).unwrap(), None);
        map.update(&key, &value).unwrap();
        assert_eq!(map.look_up(&key).unwrap().as_deref(), Some(value.as_slice()));
        map.update(&[0; 4], &value).unwrap();
        assert_eq!(map.update(&[9; 4], &value).unwrap_err().raw_os_error(), Some(libc::E2BIG));
        assert_eq!((map.delete(&key).unwrap(), map.delete(&key).unwrap()), (true, false));
    }

    #[test]
    fn sizes_of_keys_and_values_are_checked_before_the_kernel_sees_them() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let map = Map::create(MapKind::Array, "array", 4, 8, 2).unwrap();
        let invalid = Some(io::ErrorKind::InvalidInput);
        assert_eq!(map.update(&[0; 3], &[0; 8]).err().map(|error| error.kind()), invalid);
        assert_eq!(map.update(&[0; 4], &[0; 7]).err().map(|error| error.kind()), invalid);
        assert_eq!(map.look_up(&[0; 5]).err().map(|error| error.kind()), invalid);
        assert_eq!(map.delete(&[]).err().map(|error| error.kind()), invalid);
        assert_eq!(map.look_up(&2_u32.to_ne_bytes()).unwrap(), None);
    }

    #[test]
    fn values_of_all_processors_are_added_up() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let map = Map::create(MapKind::PerCpuArray, "counts", 4, 16, 1).unwrap();
        let copies = map.transfer_size() / 16;
        let one = [3_u64.to_ne_bytes(), 5_u64.to_ne_bytes()].concat();
        map.update(&[0; 4], &one.repeat(copies)).unwrap();
        let copies = copies as u64;
        assert_eq!(map.sum_over_processors(0).unwrap(), [3 * copies, 5 * copies]);
        assert_eq!(map.sum_over_processors(1).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn array_of_maps_accepts_maps_of_one_form() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let inner = Map::create(MapKind::Array, "inner", 4, 8, 2).unwrap();
        let outer = Map::create_map_of_maps("outer", &inner, 3).unwrap();
        outer.update_inner_map(2, &inner).unwrap();
        let other = Map::create(MapKind::Array, "other", 4, 16, 2).unwrap();
        assert_eq!(outer.update_inner_map(0, &other).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(outer.update_inner_map(3, &inner).unwrap_err().raw_os_error(), Some(libc::E2BIG));
    }

    #[test]
    fn map_with_invalid_sizes_is_refused() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let wrong = Map::create(MapKind::Array, "wrong", 8, 8, 1).unwrap_err();
        assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
    }
}
