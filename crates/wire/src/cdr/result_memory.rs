//! Reading a sequence into memory of the caller, even from a message of which only the beginning
//! has been received.

use super::bulk::read_element;
use super::{BulkCdr, CdrError, Decoder, MemoryRefusal, truncated};

/// Size in bytes of the buffer that receives elements whose form must be converted. The decoder
/// converts the elements from this buffer to the caller's memory.
const STAGE_BYTES: usize = 16 << 10;

/// The source of the bytes of a message that its receiver has not read from the transport.
pub trait TailSource {
    /// Fills `octets` with the next bytes of the message.
    ///
    /// # Errors
    /// Any error if the source fails. The source keeps the reason.
    fn fill(&self, octets: &mut [u8]) -> Result<(), CdrError>;
}

/// The bytes of a message behind the bytes that a decoder has.
#[derive(Clone, Copy)]
pub struct MessageTail<'t> {
    source: &'t dyn TailSource,
    len: usize,
}

impl<'t> MessageTail<'t> {
    /// Creates a tail of `len` bytes.
    #[must_use]
    pub fn new(source: &'t dyn TailSource, len: usize) -> Self {
        MessageTail { source, len }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the decoder has the whole message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Memory of the caller for a sequence of `T`: a slice, which must be large enough, or a vector,
/// which is enlarged if it is too small.
pub trait ResultMemory<T> {
    /// Returns the number of elements for which no memory must be allocated.
    fn room(&self) -> usize;

    /// Returns true if the memory can be enlarged.
    fn can_grow(&self) -> bool;

    /// Returns the memory of `len` elements. `value` initialises elements that did not exist. The
    /// caller has checked `len`.
    fn prepare(&mut self, len: usize, value: T) -> &mut [T];

    /// Makes a vector empty. Does nothing to a slice.
    fn clear(&mut self);
}

impl<T> ResultMemory<T> for [T] {
    fn room(&self) -> usize {
        self.len()
    }

    fn can_grow(&self) -> bool {
        false
    }

    fn prepare(&mut self, len: usize, _: T) -> &mut [T] {
        self.get_mut(..len).unwrap_or_default()
    }

    fn clear(&mut self) {}
}

impl<T: Copy> ResultMemory<T> for Vec<T> {
    fn room(&self) -> usize {
        self.capacity()
    }

    fn can_grow(&self) -> bool {
        true
    }

    fn prepare(&mut self, len: usize, value: T) -> &mut [T] {
        self.resize(len, value);
        self
    }

    fn clear(&mut self) {
        self.clear();
    }
}

impl Decoder<'_> {
    /// Reads a sequence into `memory`, and returns its number of elements. `bound` is the maximum
    /// number of elements of a bounded sequence. If the decoder has a
    /// [tail](Decoder::with_tail), the sequence must be the last value of the message; its last
    /// elements are then received in `memory`. After an error the contents of `memory` are
    /// unspecified.
    ///
    /// # Errors
    /// [`CdrError::ResultMemoryTooSmall`], the errors of [`read_len_bounded`](Self::read_len_bounded)
    /// and [`Cdr::decode`](super::Cdr::decode). With a tail, [`CdrError::Truncated`] if nothing was
    /// read from the tail, because only the whole message can be read.
    pub fn read_into<T: BulkCdr>(
        &mut self,
        memory: &mut (impl ResultMemory<T> + ?Sized),
        bound: Option<u32>,
    ) -> Result<usize, CdrError> {
        let tail = self.tail().filter(|tail| !tail.is_empty());
        let len = self.read_len_with_tail(T::MIN_SIZE, tail.map_or(0, |tail| tail.len))?;
        if bound.is_some_and(|bound| len > bound as usize) {
            return Err(CdrError::SequenceOverBound);
        }
        if len == 0 {
            memory.clear();
            return Ok(0);
        }
        let stride = T::LAYOUT.stride();
        if tail.is_some() && (len > memory.room() || stride > STAGE_BYTES || self.may_be_split()) {
            return Err(truncated());
        }
        if len > memory.room() {
            self.grow::<T>(len, memory)?;
        }
        let first = T::decode(self)?;
        if self.may_be_split() {
            let (place, rest) = memory.prepare(len, first).split_first_mut().ok_or_else(truncated)?;
            *place = first;
            for place in rest {
                *place = T::decode(self)?;
            }
            return Ok(len);
        }
        let octets = (len - 1).checked_mul(stride).ok_or_else(truncated)?;
        let here = match tail {
            Some(tail) if octets == self.remaining_len() + tail.len => self.remaining_len(),
            Some(_) => return Err(truncated()),
            None => octets,
        };
        let here = self.read_bytes(here)?;
        let values = memory.prepare(len, first).get_mut(..len).ok_or_else(truncated)?;
        let (place, rest) = values.split_first_mut().ok_or_else(truncated)?;
        *place = first;
        fill(rest, here, tail, self.swaps_bytes())?;
        Ok(len)
    }

    #[cold]
    fn grow<T>(&mut self, len: usize, memory: &(impl ResultMemory<T> + ?Sized)) -> Result<(), CdrError> {
        if memory.can_grow() {
            return self.charge_elements::<T>(len);
        }
        if let Some(meter) = self.meter() {
            // This refusal counts elements, while the refusals of an account count bytes.
            meter.set_refusal(MemoryRefusal { requested: len, in_use: 0, limit: memory.room() });
        }
        Err(CdrError::ResultMemoryTooSmall)
    }
}

/// Reads `values` from `here` and then from `tail`, which together have exactly the bytes of the
/// values. Reads the whole tail even if an element is invalid, so that the next message follows on
/// the connection.
fn fill<T: BulkCdr>(
    values: &mut [T],
    here: &[u8],
    tail: Option<MessageTail<'_>>,
    foreign: bool,
) -> Result<(), CdrError> {
    if T::LAYOUT.is_size_in_memory::<T>()
        && let Some(octets) = T::octets_mut(values)
    {
        let (near, far) = octets.split_at_mut_checked(here.len()).ok_or_else(truncated)?;
        near.copy_from_slice(here);
        if let Some(tail) = tail {
            tail.source.fill(far)?;
        }
        if foreign {
            values.iter_mut().for_each(|value| value.each_number(&mut |octets| octets.reverse()));
        }
        return Ok(());
    }
    let mut out_of_range = false;
    let stride = T::LAYOUT.stride();
    let whole = here.chunks_exact(stride);
    let mut carried = whole.remainder();
    let (near, far) = values.split_at_mut_checked(whole.len()).ok_or_else(truncated)?;
    for (place, octets) in near.iter_mut().zip(whole) {
        *place = read_element(octets, foreign, &mut out_of_range);
    }
    if let Some(tail) = tail {
        let mut stage = [0; STAGE_BYTES];
        for places in far.chunks_mut(STAGE_BYTES / stride) {
            let octets = stage.get_mut(..places.len() * stride).ok_or_else(truncated)?;
            let (begun, rest) = octets.split_at_mut_checked(carried.len()).ok_or_else(truncated)?;
            begun.copy_from_slice(std::mem::take(&mut carried));
            tail.source.fill(rest)?;
            for (place, octets) in places.iter_mut().zip(octets.chunks_exact(stride)) {
                *place = read_element(octets, foreign, &mut out_of_range);
            }
        }
    }
    if out_of_range { Err(CdrError::EnumOutOfRange) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::{BulkLayout, BulkReader, BulkWriter, Cdr, Encoder, Endian, MemoryAccount, MemoryMeter};
    use super::*;

    /// A source of the octets of a message that the decoder does not have.
    struct Rest<'o>(Cell<&'o [u8]>);

    impl TailSource for Rest<'_> {
        fn fill(&self, octets: &mut [u8]) -> Result<(), CdrError> {
            let (next, rest) = self.0.get().split_at_checked(octets.len()).ok_or(CdrError::Truncated)?;
            octets.copy_from_slice(next);
            self.0.set(rest);
            Ok(())
        }
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct Mixed {
        octet: u8,
        long: i32,
        short: i16,
    }

    impl Cdr for Mixed {
        const MIN_SIZE: usize = 7;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            self.octet.encode(e)?;
            self.long.encode(e)?;
            self.short.encode(e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Mixed { octet: d.read_u8()?, long: d.read_i32()?, short: d.read_i16()? })
        }
    }

    impl BulkCdr for Mixed {
        const LAYOUT: BulkLayout = u8::LAYOUT.followed_by(i32::LAYOUT).followed_by(i16::LAYOUT);

        fn put(&self, to: &mut BulkWriter<'_>) {
            self.octet.put(to);
            self.long.put(to);
            self.short.put(to);
        }

        fn take(from: &mut BulkReader<'_>) -> Self {
            Mixed { octet: u8::take(from), long: i32::take(from), short: i16::take(from) }
        }
    }

    /// Reads the sequence once for each place at which its octets can be divided between decoder
    /// and tail.
    fn read_at_every_cut<T: BulkCdr + Default + PartialEq + std::fmt::Debug>(values: &[T]) {
        for endian in [Endian::Big, Endian::Little] {
            for start in 0..8_u8 {
                let mut e = Encoder::new();
                e.set_endian(endian);
                (0..start).for_each(|octet| e.write_u8(octet));
                e.write_len(values.len()).unwrap();
                T::encode_all(values, &mut e).unwrap();
                let octets = e.to_vec();
                for cut in usize::from(start)..=octets.len() {
                    let rest = Rest(Cell::new(&octets[cut..]));
                    let tail = MessageTail::new(&rest, octets.len() - cut);
                    let mut d = Decoder::new(&octets[..cut], endian).at_position(start.into()).with_tail(&tail);
                    let mut memory = vec![T::default(); values.len()];
                    match d.read_into(memory.as_mut_slice(), None) {
                        Ok(len) => {
                            assert_eq!((len, &*memory), (values.len(), values));
                            assert!(rest.0.get().is_empty() && d.remaining_len() == 0);
                        }
                        Err(error) => {
                            assert_eq!((error, rest.0.get().len()), (CdrError::Truncated, octets.len() - cut));
                            let gap = usize::from(start).next_multiple_of(4) - usize::from(start);
                            assert!(cut < usize::from(start) + gap + 4 + T::LAYOUT.stride() + 8, "{cut}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn sequence_is_read_whatever_part_of_it_is_in_the_tail() {
        read_at_every_cut::<u8>(&[1, 2, 3, 4, 5]);
        read_at_every_cut(&[-1_i16, 2, 3]);
        read_at_every_cut(&[1.5_f64, -2.5, 3.5]);
        read_at_every_cut(&[[1_u32, 2], [3, 4], [5, 6]]);
        read_at_every_cut(&[true, false, true]);
        let mixed = |index: u8| Mixed { octet: index, long: -i32::from(index), short: 300 + i16::from(index) };
        read_at_every_cut(&[mixed(1), mixed(2), mixed(3), mixed(4)]);
    }

    #[test]
    fn elements_are_staged_without_a_loss_at_the_borders_of_the_stage() {
        let values: Vec<Mixed> = (0..5_000_i16)
            .map(|index| Mixed { octet: index.to_le_bytes()[0], long: index.into(), short: -index })
            .collect();
        let mut e = Encoder::new();
        values.encode(&mut e).unwrap();
        let octets = e.to_vec();
        for cut in [16, 17, 30, STAGE_BYTES, STAGE_BYTES + 5, octets.len() - 1] {
            let rest = Rest(Cell::new(&octets[cut..]));
            let tail = MessageTail::new(&rest, octets.len() - cut);
            let mut memory = vec![Mixed::default(); values.len()];
            let mut d = Decoder::new(&octets[..cut], Endian::NATIVE).with_tail(&tail);
            assert_eq!(d.read_into(memory.as_mut_slice(), None), Ok(values.len()));
            assert_eq!(memory, values);
        }
    }

    struct Unlimited;

    impl MemoryAccount for Unlimited {
        fn reserve(&self, _: usize) -> Result<(), MemoryRefusal> {
            Ok(())
        }

        fn release(&self, _: usize) {}
    }

    #[test]
    fn slice_that_is_too_small_is_refused_and_a_vector_grows() {
        let mut e = Encoder::new();
        vec![1_u16, 2, 3].encode(&mut e).unwrap();
        let octets = e.to_vec();
        let meter = MemoryMeter::new(&Unlimited);
        let d = Decoder::new(&octets, Endian::NATIVE).with_memory_meter(&meter);
        let mut small = [0_u16; 2];
        assert_eq!(d.clone().read_into(small.as_mut_slice(), None), Err(CdrError::ResultMemoryTooSmall));
        assert_eq!(meter.refusal(), Some(MemoryRefusal { requested: 3, in_use: 0, limit: 2 }));
        let mut vector = vec![9_u16; 1];
        assert_eq!(d.clone().read_into(&mut vector, None), Ok(3));
        assert_eq!((&*vector, meter.charged_bytes()), (&[1, 2, 3][..], 6));
        assert_eq!(d.clone().read_into(&mut vector, Some(2)), Err(CdrError::SequenceOverBound));
        assert_eq!(Decoder::new(&[0; 4], Endian::NATIVE).read_into(&mut vector, None), Ok(0));
        assert!(vector.is_empty());
        let counts = [0xff; 8];
        assert_eq!(
            Decoder::new(&counts, Endian::NATIVE).read_into(&mut vector, None),
            Err(CdrError::CountExceedsInput)
        );
    }

    #[test]
    fn sequence_that_is_not_the_end_of_the_message_takes_nothing_from_the_tail() {
        let mut e = Encoder::new();
        vec![1_u32, 2, 3].encode(&mut e).unwrap();
        e.write_u8(4);
        let octets = e.to_vec();
        let rest = Rest(Cell::new(&octets[9..]));
        let tail = MessageTail::new(&rest, octets.len() - 9);
        let mut memory = [0_u32; 3];
        let mut d = Decoder::new(&octets[..9], Endian::NATIVE).with_tail(&tail);
        assert_eq!(d.read_into(memory.as_mut_slice(), None), Err(CdrError::Truncated));
        assert_eq!(rest.0.get().len(), tail.len());
    }
}
