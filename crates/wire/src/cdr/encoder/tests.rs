use super::*;

#[test]
fn owned_octets_are_kept_without_a_copy() {
    let large = Octets::from(vec![1; BORROW_THRESHOLD]);
    let mut encoder = Encoder::new();
    encoder.write_octet_sequence_owned(large.clone()).unwrap();
    encoder.write_u8(2);
    let kept: Vec<Octets> = encoder.slices().map(|slice| encoder.share_or_copy(slice)).collect();
    assert_eq!(kept.iter().flat_map(|octets| octets.iter().copied()).collect::<Vec<u8>>(), encoder.to_vec());
    assert_eq!(kept[1].as_ptr(), large.as_ptr());
    assert_eq!(encoder.share_or_copy(&large[5..]).as_ptr(), large[5..].as_ptr());
}

#[test]
fn alignment_is_minimal_and_zero_in_both_orders() {
    let mut e = Encoder::new();
    e.set_endian(Endian::Big);
    e.write_u8(1);
    e.write_u16(0x0203);
    e.write_u8(4);
    e.write_u32(0x0506_0708);
    e.write_u8(9);
    e.write_f64(1.0);
    let octets = e.into_reusable_buffer();
    assert_eq!(octets[..12], [1, 0, 2, 3, 4, 0, 0, 0, 5, 6, 7, 8]);
    assert_eq!(octets[12..], [9, 0, 0, 0, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
    let mut e = Encoder::new();
    e.set_endian(Endian::Little);
    e.write_i16(-2);
    e.write_i64(1);
    assert_eq!(e.into_reusable_buffer(), [0xfe, 0xff, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn long_double_is_reversed_as_16_bytes_and_aligned_to_8() {
    let mut quad = [0; 16];
    quad[0] = 0x3f;
    let mut e = Encoder::new();
    e.set_endian(Endian::Little);
    e.write_u8(1);
    e.write_long_double(quad);
    assert_eq!((e.len(), e.buffer[23]), (24, 0x3f));
}

#[test]
fn segments_of_large_octets_count_for_alignment() {
    let large = vec![0xaa; BORROW_THRESHOLD + 1];
    let mut e = Encoder::new();
    e.set_endian(Endian::Big);
    e.write_octet_sequence(&large).unwrap();
    assert_eq!(e.position(), 4 + large.len());
    e.write_u32(7);
    assert_eq!(e.buffer.len(), 4 + 3 + 4);
    let slices: Vec<&[u8]> = e.slices().collect();
    assert_eq!((slices.len(), slices[1].as_ptr()), (3, large.as_ptr()));
    assert_eq!(e.as_contiguous_slice(), None);
    assert_eq!(e.to_vec().len(), e.len());
    assert_eq!(e.to_vec()[4 + large.len() + 3..], [0, 0, 0, 7]);
    for range in [0..0, 0..4, 2..6, 3..e.len(), 5..16_300, 16_388..16_393, 16_000..19_999] {
        let mut list = [&[][..]; MAX_ENCODER_SLICES];
        assert_eq!(e.gather_slices(&mut list, |slice| slice).concat(), e.to_vec());
        let part: Vec<u8> = e.slices_in(range.clone()).flatten().copied().collect();
        assert_eq!(part, e.to_vec()[range.start..range.end.min(e.len())]);
    }
}

#[test]
fn the_ninth_segment_is_copied() {
    let large = vec![1; BORROW_THRESHOLD];
    let mut e = Encoder::new();
    for _ in 0..10 {
        e.write_octet_sequence(&large).unwrap();
    }
    assert_eq!(e.slices().count(), MAX_ENCODER_SLICES);
    let mut list = [&[][..]; MAX_ENCODER_SLICES];
    assert_eq!(e.gather_slices(&mut list, |slice| slice).concat(), e.to_vec());
    assert_eq!(e.to_vec().len(), 10 * (4 + large.len()));
}

#[test]
fn truncation_removes_the_segments_after_the_mark() {
    let owned = Octets::from(vec![1; BORROW_THRESHOLD]);
    let mut e = Encoder::new();
    e.write_u8(1);
    let mark = e.truncation_point();
    e.write_octet_sequence_owned(owned).unwrap();
    e.write_u32(1);
    e.truncate(mark);
    assert_eq!((e.len(), e.position(), e.as_contiguous_slice()), (1, 1, Some([1].as_slice())));
    e.write_u16(0);
    assert_eq!(e.len(), 4);
}

#[test]
fn borrowed_and_owned_segments_keep_their_order_after_truncation() {
    let lent = vec![2; BORROW_THRESHOLD];
    let owned = Octets::from(vec![1; BORROW_THRESHOLD]);
    let put = |e: &mut Encoder<'_>, number: u32| {
        e.write_u32(number);
        e.position()
    };
    let whole = |parts: &[&[u8]]| {
        let mut all = Vec::new();
        for (number, part) in (0u32..).zip(parts) {
            all.extend(number.to_be_bytes());
            all.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
            all.extend(*part);
        }
        all
    };
    for owned_first in [true, false] {
        let mut e = Encoder::new();
        e.set_endian(Endian::Big);
        let write = |e: &mut Encoder<'_>, number: u32, is_owned: bool| {
            let at = put(e, number);
            if is_owned {
                e.write_octet_sequence_owned(owned.clone()).unwrap()
            } else {
                e.write_octet_sequence_copied(&lent).unwrap()
            }
            at
        };
        write(&mut e, 0, owned_first);
        let mark = e.truncation_point();
        for number in 1..4 {
            write(&mut e, number, number % 2 == 0);
        }
        e.truncate(mark);
        let at = write(&mut e, 1, !owned_first);
        e.patch_u32(at - 4, 1);
        let (first, second): (&[u8], &[u8]) = if owned_first { (&owned, &lent) } else { (&lent, &owned) };
        assert_eq!(e.to_vec(), whole(&[first, second]));
        e.clear();
        write(&mut e, 0, !owned_first);
        assert_eq!(e.to_vec(), whole(&[second]));
    }
}

#[test]
fn an_encapsulation_has_its_own_origin() {
    let large = vec![1; BORROW_THRESHOLD];
    let mut e = Encoder::new();
    e.set_endian(Endian::Big);
    e.write_u16(0xffff);
    e.write_encapsulation(|e| {
        e.write_u32(5);
        e.write_octet_sequence(&large)
    })
    .unwrap();
    e.write_u64(1);
    let all = e.to_vec();
    assert_eq!(all[4..8], u32::try_from(12 + large.len()).unwrap().to_be_bytes());
    assert_eq!(all[8..20], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0x40, 0]);
    assert_eq!(all.len(), 20 + large.len() + 4 + 8);
}

#[test]
fn patching_counts_the_segments_in_front() {
    let large = vec![1; BORROW_THRESHOLD];
    let mut e = Encoder::new();
    e.set_endian(Endian::Big);
    e.write_octet_sequence(&large).unwrap();
    let first = e.position();
    e.write_u32(0);
    e.write_octet_sequence(&large).unwrap();
    let second = e.position();
    e.write_u32(0);
    e.patch_u32(0, 8);
    e.patch_u32(first, 9);
    e.patch_u32(second, 10);
    e.patch_u32(100, 11);
    e.patch_u32(1 << 40, 12);
    let all = e.to_vec();
    let at = |at: usize| all[at..at + 4].to_vec();
    assert_eq!((at(0), at(first), at(second)), (vec![0, 0, 0, 8], vec![0, 0, 0, 9], vec![0, 0, 0, 10]));
}

#[test]
fn numbers_written_in_bulk_are_aligned_and_in_the_byte_order_of_the_message() {
    for endian in [Endian::Big, Endian::Little] {
        let mut bulk = Encoder::new();
        let mut single = Encoder::new();
        bulk.set_endian(endian);
        single.set_endian(endian);
        bulk.write_u8(1);
        single.write_u8(1);
        bulk.write_slice(&[1.5f64, -2.0]);
        single.write_f64(1.5);
        single.write_f64(-2.0);
        bulk.write_slice::<i64>(&[]);
        bulk.write_slice(&[1i16, -1]);
        single.write_i16(1);
        single.write_i16(-1);
        assert_eq!(bulk.into_reusable_buffer(), single.into_reusable_buffer());
    }
}

#[test]
fn large_slices_of_numbers_become_segments() {
    let other = if Endian::NATIVE == Endian::Big { Endian::Little } else { Endian::Big };
    for (len, endian) in [(3, Endian::NATIVE), (3000, Endian::NATIVE), (3000, other)] {
        let numbers: Vec<f64> = (0..len).map(f64::from).collect();
        let address = numbers.as_ptr().addr();
        let [mut copied, mut lent, mut owned] = [(); 3].map(|()| Encoder::new());
        for e in [&mut copied, &mut lent, &mut owned] {
            e.set_endian(endian);
            e.write_u8(1);
        }
        copied.write_slice(&numbers);
        lent.write_slice_borrowed(&numbers);
        owned.write_slice_owned(numbers.clone());
        for e in [&mut copied, &mut lent, &mut owned] {
            e.write_u16(2);
        }
        assert_eq!(lent.to_vec(), copied.to_vec());
        assert_eq!(owned.to_vec(), copied.to_vec());
        let beside = len == 3000 && endian == Endian::NATIVE;
        assert_eq!(lent.slices().any(|slice| slice.as_ptr().addr() == address), beside);
        assert_eq!(owned.slices().count(), if beside { 3 } else { 1 });
    }
}

#[test]
fn count_above_its_bound_or_32_bits_is_refused() {
    let mut e = Encoder::new();
    assert_eq!(e.write_len(usize::MAX), Err(CdrError::LengthOverflow));
    assert_eq!(e.write_len_bounded(4, 3), Err(CdrError::SequenceOverBound));
    assert_eq!(e.write_len_bounded(3, 3), Ok(()));
}
