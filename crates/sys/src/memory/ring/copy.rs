//! Copies between private memory and memory that other processes may write at any time.
//!
//! A plain copy of such memory would be a data race. For the language, each copy here is a series
//! of relaxed atomic accesses to bytes and aligned words of the shared memory; on x86-64 it is
//! assembly. So if a byte changes during a copy, the copy contains its old or its new value.

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) use portable::{copy_in, copy_out};
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) use x86_64::{copy as copy_in, copy as copy_out};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use std::arch::asm;

    const LARGE: usize = 512;
    const PAGE: usize = 4096;

    /// Returns true if `rep movsb` is slow for these addresses. Some processors then copy byte by
    /// byte, because they compare only the offsets in a page and assume an overlap.
    #[inline]
    fn seems_to_overlap(from: *const u8, to: *mut u8) -> bool {
        (1..32).contains(&(to.addr().wrapping_sub(from.addr()) % PAGE))
    }

    /// Copies `length` bytes to or from shared memory.
    ///
    /// # Safety
    /// Both ranges are mapped and do not overlap. No reference to the shared range exists, and no
    /// other thread accesses the private range.
    #[inline(never)]
    pub(in super::super) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
        // SAFETY: in each branch, every access is within the two ranges, whose length the branch
        // has checked.
        unsafe {
            if length > LARGE && !seems_to_overlap(from, to) {
                asm!(
                    "rep movsb",
                    inout("rcx") length => _, inout("rsi") from => _, inout("rdi") to => _,
                    options(nostack, preserves_flags),
                );
            } else if length > 64 {
                asm!(
                    "2:",
                    "movdqu {a}, [{from}]",
                    "movdqu {b}, [{from} + 16]",
                    "movdqu {c}, [{from} + 32]",
                    "movdqu {d}, [{from} + 48]",
                    "movdqu [{to}], {a}",
                    "movdqu [{to} + 16], {b}",
                    "movdqu [{to} + 32], {c}",
                    "movdqu [{to} + 48], {d}",
                    "add {from}, 64",
                    "add {to}, 64",
                    "dec {blocks}",
                    "jnz 2b",
                    "movdqu {a}, [{from} + {rest} - 64]",
                    "movdqu {b}, [{from} + {rest} - 48]",
                    "movdqu {c}, [{from} + {rest} - 32]",
                    "movdqu {d}, [{from} + {rest} - 16]",
                    "movdqu [{to} + {rest} - 64], {a}",
                    "movdqu [{to} + {rest} - 48], {b}",
                    "movdqu [{to} + {rest} - 32], {c}",
                    "movdqu [{to} + {rest} - 16], {d}",
                    from = inout(reg) from => _,
                    to = inout(reg) to => _,
                    blocks = inout(reg) length / 64 => _,
                    rest = in(reg) length % 64,
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                    options(nostack),
                );
            } else if length >= 32 {
                asm!(
                    "movdqu {a}, [{from}]",
                    "movdqu {b}, [{from} + 16]",
                    "movdqu {c}, [{from} + {n} - 32]",
                    "movdqu {d}, [{from} + {n} - 16]",
                    "movdqu [{to}], {a}",
                    "movdqu [{to} + 16], {b}",
                    "movdqu [{to} + {n} - 32], {c}",
                    "movdqu [{to} + {n} - 16], {d}",
                    from = in(reg) from, to = in(reg) to, n = in(reg) length,
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                    options(nostack, preserves_flags),
                );
            } else if length >= 16 {
                asm!(
                    "movdqu {a}, [{from}]",
                    "movdqu {b}, [{from} + {n} - 16]",
                    "movdqu [{to}], {a}",
                    "movdqu [{to} + {n} - 16], {b}",
                    from = in(reg) from, to = in(reg) to, n = in(reg) length, a = out(xmm_reg) _, b = out(xmm_reg) _,
                    options(nostack, preserves_flags),
                );
            } else if length >= 8 {
                asm!(
                    "mov {a}, [{from}]",
                    "mov {b}, [{from} + {n} - 8]",
                    "mov [{to}], {a}",
                    "mov [{to} + {n} - 8], {b}",
                    from = in(reg) from, to = in(reg) to, n = in(reg) length, a = out(reg) _, b = out(reg) _,
                    options(nostack, preserves_flags),
                );
            } else if length >= 4 {
                asm!(
                    "mov {a:e}, [{from}]",
                    "mov {b:e}, [{from} + {n} - 4]",
                    "mov [{to}], {a:e}",
                    "mov [{to} + {n} - 4], {b:e}",
                    from = in(reg) from, to = in(reg) to, n = in(reg) length, a = out(reg) _, b = out(reg) _,
                    options(nostack, preserves_flags),
                );
            } else {
                for at in 0..length {
                    asm!(
                        "mov {a}, [{from}]",
                        "mov [{to}], {a}",
                        from = in(reg) from.add(at), to = in(reg) to.add(at), a = out(reg_byte) _,
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    }
}

#[cfg(any(test, not(all(target_arch = "x86_64", not(miri)))))]
mod portable {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    const WORD: usize = size_of::<u64>();

    /// Copies `length` bytes to shared memory.
    ///
    /// # Safety
    /// Both ranges are mapped and do not overlap. No reference to the shared range exists, and no
    /// other thread writes the private range.
    pub(in super::super) unsafe fn copy_in(from: *const u8, to: *mut u8, length: usize) {
        let mut at = 0;
        while at < length {
            // SAFETY: `at` is within the two ranges. Where a word is copied, the whole word is
            // within them, too, and it is aligned on the shared side.
            unsafe {
                let (from, to) = (from.add(at), to.add(at));
                if to.addr().is_multiple_of(WORD) && length - at >= WORD {
                    AtomicU64::from_ptr(to.cast()).store(from.cast::<u64>().read_unaligned(), Ordering::Relaxed);
                    at += WORD;
                } else {
                    AtomicU8::from_ptr(to).store(from.read(), Ordering::Relaxed);
                    at += 1;
                }
            }
        }
    }

    /// Copies `length` bytes out of shared memory.
    ///
    /// # Safety
    /// As for [`copy_in`]; in addition, no other thread reads the private range.
    pub(in super::super) unsafe fn copy_out(from: *const u8, to: *mut u8, length: usize) {
        let mut at = 0;
        while at < length {
            // SAFETY: `at` is within the two ranges. Where a word is copied, the whole word is
            // within them, too, and it is aligned on the shared side.
            unsafe {
                let (from, to) = (from.add(at).cast_mut(), to.add(at));
                if from.addr().is_multiple_of(WORD) && length - at >= WORD {
                    to.cast::<u64>().write_unaligned(AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed));
                    at += WORD;
                } else {
                    to.write(AtomicU8::from_ptr(from).load(Ordering::Relaxed));
                    at += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unused_qualifications, reason = "on some architectures both pairs are the portable one")]
    fn copies_between_any_places_of_a_page_are_right() {
        let from: Vec<u8> = (0..20_000u32).map(|at| (at * 7 + 13) as u8 | 1).collect();
        for (length, distance) in [513, 4096, 9001].into_iter().flat_map(|length| (0..70).map(move |by| (length, by))) {
            if cfg!(miri) && (length > 600 || distance > 3) {
                continue;
            }
            let mut to = vec![0; 20_000];
            let behind = from.as_ptr().addr().wrapping_sub(to.as_ptr().addr()) % 4096;
            let place = behind + distance;
            for copy in [copy_in as unsafe fn(*const u8, *mut u8, usize), copy_out] {
                to.fill(0);
                // SAFETY: both ranges are inside their vectors, which belong to this thread.
                unsafe { copy(from.as_ptr(), to.as_mut_ptr().add(place), length) };
                assert_eq!(to[place..place + length], from[..length], "{length} octets, {distance} behind");
                assert!(to[..place].iter().chain(&to[place + length..]).all(|octet| *octet == 0));
            }
        }
    }

    #[test]
    #[allow(unused_qualifications, reason = "on some architectures both pairs are the portable one")]
    fn only_bytes_of_the_range_are_copied() {
        type Copy = unsafe fn(*const u8, *mut u8, usize);
        let every: [Copy; 4] = [copy_in, copy_out, portable::copy_in, portable::copy_out];
        let from: Vec<u8> = (0..1200u32).map(|at| (at * 7 + 13) as u8 | 1).collect();
        let lengths = || (0..150).chain(500..530).chain([1000, 1111]);
        for copy in every {
            for length in lengths().filter(|length| !cfg!(miri) || *length < 40) {
                for (start, place) in [(0, 0), (1, 0), (3, 5), (8, 1), (7, 7)] {
                    let mut to = vec![0; 1200];
                    // SAFETY: both ranges are inside their vectors, which belong to this thread.
                    unsafe { copy(from.as_ptr().add(start), to.as_mut_ptr().add(place), length) };
                    assert_eq!(to[place..place + length], from[start..start + length], "{length} octets");
                    assert!(
                        to[..place].iter().chain(&to[place + length..]).all(|octet| *octet == 0),
                        "{length} octets"
                    );
                }
            }
        }
    }
}
