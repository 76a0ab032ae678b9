//! Reading of values: checks tags, ids, chunks and the targets of indirections.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::hint::cold_path;
use std::sync::Arc;

use super::{CHUNKED, CODEBASE, ID_LIST, IDS, INDIRECTION, ONE_ID, TAG};
use crate::cdr::{CdrError, Decoder, Encoder, PathStep, ValuePath};
use crate::typecode::TypeCode;

const BYTES_PER_VALUE: usize = 2 * (2 * size_of::<(usize, IndirectionTarget)>() + size_of::<u32>());

/// Maximum number of bytes that [`Decoder::reread_value`] reads again in total for a message, in
/// multiples of the message's size.
const MAX_REREADS: usize = 16;

/// The state that the values (IDL `valuetype`) of one message share while they are read.
///
/// Each message needs a new state, passed to [`Decoder::with_value_read_state`].
#[derive(Default)]
pub struct ValueReadState {
    /// Behind one pointer, so that a state without values is cheap to create and drop.
    read_values: RefCell<Option<Box<ReadValues>>>,
    lookup_type: Option<ValueTypeLookup>,
    convert_custom: Option<CustomValueConverter>,
}

pub(crate) type ValueTypes = Arc<[(Box<str>, TypeCode)]>;

/// A function that looks up a value type's TypeCode by its repository id in the decoder's
/// environment.
pub type ValueTypeLookup = fn(environment: &(dyn Any + Sync), repository_id: &[u8]) -> Option<TypeCode>;

/// A function that reads a custom value, tag included, with the custom code of its type, and writes
/// the value.
pub type CustomValueConverter = fn(&mut Decoder<'_>, &mut Encoder<'_>) -> Result<(), CdrError>;

type FindType = dyn Fn(&[u8]) -> Option<TypeCode> + Send;

#[derive(Default)]
struct ReadValues {
    /// Indirection targets, sorted by memory address. Positions are not unique, because they count
    /// from the start of each encapsulation.
    targets: Vec<(usize, IndirectionTarget)>,
    /// The number of chunked values around each value, indexed by the value's number in the
    /// message.
    chunk_levels: Vec<u32>,
    depth: u32,
    reread_bytes: usize,
    /// The closure is boxed, so that programs without values do not link the code that drops
    /// TypeCodes.
    find_known_type: Option<Box<FindType>>,
    store: Option<Arc<dyn Any + Send + Sync>>,
    value_path: Option<ValuePath>,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum IndirectionTarget {
    Value(u32),
    Id,
    IdList,
}

impl ValueReadState {
    /// Creates a state in which no value was read.
    #[must_use]
    #[inline]
    pub const fn new() -> ValueReadState {
        ValueReadState { read_values: RefCell::new(None), lookup_type: None, convert_custom: None }
    }

    /// Sets the functions that values in an `any` need. `look_up` finds the TypeCode of a value
    /// whose type inherits from the type in the `any`. If `look_up` does not find it, the value is
    /// truncated or refused. `convert` converts custom values whose octets cannot be copied.
    #[must_use]
    #[inline]
    pub const fn with_lookup_and_converter(
        mut self,
        look_up: Option<ValueTypeLookup>,
        convert: Option<CustomValueConverter>,
    ) -> Self {
        self.lookup_type = look_up;
        self.convert_custom = convert;
        self
    }

    pub(crate) fn with_known_types(types: Option<ValueTypes>) -> ValueReadState {
        let seen = types.map(|types| {
            let find = move |id: &[u8]| {
                let found = types.iter().find(|(known, _)| known.as_bytes() == id);
                found.map(|(_, type_code)| type_code.clone())
            };
            Box::new(ReadValues { find_known_type: Some(Box::new(find)), ..ReadValues::default() })
        });
        ValueReadState { read_values: RefCell::new(seen), lookup_type: None, convert_custom: None }
    }

    /// Returns an object that the caller attaches to the message for all its values. The first call
    /// creates the object with `make`.
    pub fn user_data(&self, make: impl FnOnce() -> Arc<dyn Any + Send + Sync>) -> Arc<dyn Any + Send + Sync> {
        let mut seen = self.read_values.borrow_mut();
        Arc::clone(seen.get_or_insert_default().store.get_or_insert_with(make))
    }

    #[cold]
    pub(in crate::cdr) fn record_step(&self, step: PathStep, place: usize) {
        self.read_values.borrow_mut().get_or_insert_default().value_path.get_or_insert_default().add(step, place);
    }

    #[cold]
    pub(in crate::cdr) fn value_path(&self) -> Option<ValuePath> {
        self.read_values.borrow().as_ref()?.value_path.clone()
    }

    /// Returns the number of values around the current position.
    #[must_use]
    pub fn enclosing_value_count(&self) -> u32 {
        self.read_values.borrow().as_ref().map_or(0, |seen| seen.depth)
    }

    pub(super) fn add_target(&self, at: usize, target: IndirectionTarget) {
        let mut seen = self.read_values.borrow_mut();
        let marks = &mut seen.get_or_insert_default().targets;
        // Targets arrive in order of address, except when a value is read again.
        let place = match marks.last() {
            Some((last, _)) if *last >= at => marks.partition_point(|(address, _)| *address < at),
            _ => marks.len(),
        };
        if marks.get(place).is_none_or(|(address, _)| *address != at) {
            marks.insert(place, (at, target));
        }
    }

    pub(super) fn find_target(&self, at: usize) -> Option<IndirectionTarget> {
        let seen = self.read_values.borrow();
        let marks = &seen.as_ref()?.targets;
        let place = marks.binary_search_by_key(&at, |(address, _)| *address).ok()?;
        marks.get(place).map(|(_, target)| *target)
    }

    pub(super) fn add_value(&self, at: usize, level: u32, limit: u32) -> Result<u32, CdrError> {
        let known = self.find_target(at);
        let number = {
            let mut seen = self.read_values.borrow_mut();
            let seen = seen.get_or_insert_default();
            seen.depth += 1;
            if let Some(IndirectionTarget::Value(number)) = known {
                return Ok(number);
            }
            let number = u32::try_from(seen.chunk_levels.len()).ok().filter(|number| *number < limit);
            let number = number.ok_or(CdrError::LimitExceeded)?;
            seen.chunk_levels.push(level);
            number
        };
        self.add_target(at, IndirectionTarget::Value(number));
        Ok(number)
    }

    fn chunk_level(&self, number: u32) -> u32 {
        let seen = self.read_values.borrow();
        seen.as_ref().and_then(|seen| seen.chunk_levels.get(number as usize).copied()).unwrap_or_default()
    }

    fn known_type(&self, id: &[u8]) -> Option<TypeCode> {
        let seen = self.read_values.borrow();
        let find = seen.as_ref()?.find_known_type.as_ref()?;
        find(id)
    }

    pub(super) fn leave_value(&self) {
        if let Some(seen) = self.read_values.borrow_mut().as_mut() {
            seen.depth = seen.depth.saturating_sub(1);
        }
    }
}

impl Drop for ValueReadState {
    #[inline]
    fn drop(&mut self) {
        let seen = self.read_values.get_mut();
        if seen.is_some() {
            cold_path();
            *seen = None;
        }
    }
}

impl fmt::Debug for ValueReadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.read_values.borrow().as_ref().map_or(0, |seen| seen.chunk_levels.len());
        f.debug_struct("ValueReadState").field("values", &values).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
pub(in crate::cdr) struct Chunks<'m> {
    /// The whole message while the decoder is restricted to a chunk; empty otherwise.
    message: &'m [u8],
    pub(in crate::cdr) level: u32,
    /// The outermost level that an end tag has ended and that the reader has not left; 0 for none.
    pub(super) ended_level: u32,
}

impl Chunks<'_> {
    pub(in crate::cdr) const NONE: Self = Chunks { message: &[], level: 0, ended_level: 0 };

    #[inline]
    pub(in crate::cdr) fn remaining(&self, position: usize) -> usize {
        self.message.len().saturating_sub(position)
    }
}

/// The beginning of an encoded value: null, an indirection, or the head of a value with state.
#[derive(Debug)]
pub enum ValueHead<'m> {
    /// The null value.
    Null,
    /// An indirection to a value that began earlier in the message, possibly to a value that
    /// contains the indirection: the value's number, and the position of its tag.
    Indirection(u32, usize),
    /// A value whose state follows. [`Decoder::end_value`] ends the value.
    Value(ValueStart<'m>),
}

/// The head of a value.
#[derive(Debug)]
pub struct ValueStart<'m> {
    /// The number of this value: the number of values that begin earlier in the message.
    pub value_number: u32,
    /// The repository ids of the value's type.
    pub repository_ids: RepositoryIds<'m>,
    /// True if the value's state is chunked, so that the reader can skip an unread part of the
    /// state.
    pub is_chunked: bool,
    pub(crate) position: usize,
    /// The number of chunked values around the state, this value included if it is chunked.
    pub(super) level: u32,
}

/// The repository ids in front of a value, the most derived first.
#[derive(Debug, PartialEq, Eq)]
pub enum RepositoryIds<'m> {
    /// No ids: the value has the type that the reader expects.
    None,
    /// The id of the value's type.
    One(&'m [u8]),
    /// The ids of the value's type and of the types to which it can be truncated.
    Many(Vec<&'m [u8]>),
}

impl<'m> RepositoryIds<'m> {
    /// Returns the ids in order.
    #[must_use]
    pub fn as_slice(&self) -> &[&'m [u8]] {
        match self {
            RepositoryIds::None => &[],
            RepositoryIds::One(id) => std::slice::from_ref(id),
            RepositoryIds::Many(ids) => ids,
        }
    }
}

impl<'m> Decoder<'m> {
    /// Reads the head of a value, up to its state.
    ///
    /// # Errors
    /// [`CdrError::MalformedValuetype`] if the bytes are not a value; [`CdrError::BadIndirection`];
    /// [`CdrError::StringNotTerminated`] for an id; [`CdrError::LimitExceeded`] if values, ids or
    /// the length of an id exceed the limits; the errors of [`charge`](Decoder::charge);
    /// [`CdrError::Truncated`]; [`CdrError::UnsupportedForm`] without a [`ValueReadState`], and in
    /// a fragmented GIOP 1.1 message, where positions are meaningless.
    pub fn read_value_head(&mut self) -> Result<ValueHead<'m>, CdrError> {
        let space = self.usable_value_read_state().ok_or(CdrError::UnsupportedForm)?;
        let within = self.chunks().level > 0;
        let mut in_chunk = within;
        if within && self.remaining_bytes().is_empty() {
            let next = self.peek_after_chunk()?;
            if (1..TAG).contains(&next) {
                self.open_chunk()?;
            } else {
                self.show_whole_message();
                in_chunk = false;
            }
        }
        let tag = self.read_u32()?;
        let at = self.position() - 4;
        match tag {
            0 => {
                self.resume_chunk(in_chunk);
                Ok(ValueHead::Null)
            }
            INDIRECTION => {
                let (place, target) = self.read_indirection()?;
                self.resume_chunk(in_chunk);
                match target {
                    IndirectionTarget::Value(number) if place < at => Ok(ValueHead::Indirection(number, place)),
                    _ => Err(CdrError::BadIndirection),
                }
            }
            _ if tag >> 8 != TAG >> 8 || tag & 0xff > 0x0f || in_chunk || (within && tag & CHUNKED == 0) => {
                Err(CdrError::MalformedValuetype)
            }
            _ => {
                self.charge(BYTES_PER_VALUE)?;
                let number =
                    space.add_value(self.address(at), self.chunks().level, self.limits().max_valuetype_instances)?;
                let ids = self.read_value_type(tag)?;
                let chunked = tag & CHUNKED != 0;
                if chunked {
                    self.enter_chunks();
                }
                Ok(ValueHead::Value(ValueStart {
                    value_number: number,
                    repository_ids: ids,
                    is_chunked: chunked,
                    position: at,
                    level: self.chunks().level,
                }))
            }
        }
    }

    /// Ends a value. If its state is chunked, skips the unread part.
    ///
    /// # Errors
    /// [`CdrError::MalformedValuetype`], [`CdrError::Truncated`] and other errors if the unread
    /// part is malformed.
    pub fn end_value(&mut self, value: &ValueStart<'m>) -> Result<(), CdrError> {
        if let Some(space) = self.usable_value_read_state() {
            space.leave_value();
        }
        if !value.is_chunked {
            return Ok(());
        }
        if self.chunks().ended_level == 0 || self.chunks().ended_level > value.level {
            self.skip_to_end(value.level)?;
        }
        let chunks = self.chunks_mut();
        if chunks.ended_level == value.level {
            chunks.ended_level = 0;
        }
        chunks.level = value.level.saturating_sub(1);
        self.resume_chunk(false);
        Ok(())
    }

    pub(crate) fn find_value_type(&self, id: &[u8]) -> Option<TypeCode> {
        let space = self.value_read_state()?;
        let asked = || space.lookup_type.zip(self.decoding_context()).and_then(|(ask, env)| ask(env, id));
        space.known_type(id).or_else(asked)
    }

    /// Reads an earlier value again. `position` is the position of its tag.
    ///
    /// # Errors
    /// The errors of `read`; [`CdrError::LimitExceeded`] if the values read again exceed 16 times
    /// the message's size; [`CdrError::UnsupportedForm`] without a [`ValueReadState`].
    pub fn reread_value<T>(
        &self,
        number: u32,
        position: usize,
        read: impl FnOnce(&mut Decoder<'m>) -> Result<T, CdrError>,
    ) -> Result<T, CdrError> {
        let space = self.usable_value_read_state().ok_or(CdrError::UnsupportedForm)?;
        let full = if self.chunks().level > 0 { self.chunks().message } else { self.bytes_from_origin() };
        let level = space.chunk_level(number);
        let mut there = self.clone();
        *there.chunks_mut() = if level > 0 { Chunks { message: full, level, ended_level: 0 } } else { Chunks::NONE };
        there.set_window(full, position, if level > 0 { position } else { full.len() });
        let value = read(&mut there)?;
        if let Some(seen) = space.read_values.borrow_mut().as_mut() {
            seen.reread_bytes = seen.reread_bytes.saturating_add(there.position().saturating_sub(position));
            if seen.reread_bytes > full.len().saturating_mul(MAX_REREADS) {
                return Err(CdrError::LimitExceeded);
            }
        }
        Ok(value)
    }

    /// Writes a custom value, whose head was read, with the custom code of its type.
    ///
    /// # Errors
    /// [`CdrError::CustomValueNotConvertible`] if there is no such code; the errors of that code.
    pub(crate) fn convert_custom(&mut self, start: &ValueStart<'m>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let convert = self
            .usable_value_read_state()
            .and_then(|space| space.convert_custom)
            .ok_or(CdrError::CustomValueNotConvertible)?;
        self.reread_value(start.value_number, start.position, |d| convert(d, e)).map_err(|error| match error {
            CdrError::NoValueFactory => CdrError::CustomValueNotConvertible,
            error => error,
        })?;
        self.end_value(start)
    }

    pub(super) fn read_value_type(&mut self, tag: u32) -> Result<RepositoryIds<'m>, CdrError> {
        if tag & CODEBASE != 0 {
            self.read_repository_id()?;
        }
        match tag & IDS {
            0 => Ok(RepositoryIds::None),
            ONE_ID => Ok(RepositoryIds::One(self.read_repository_id()?)),
            ID_LIST => {
                let count = self.read_u32()?;
                let at = self.position() - 4;
                if count != INDIRECTION {
                    if let Some(space) = self.usable_value_read_state() {
                        space.add_target(self.address(at), IndirectionTarget::IdList);
                    }
                    return self.read_ids(count);
                }
                match self.read_indirection()? {
                    (place, IndirectionTarget::IdList) if place < at => {
                        let mut there = self.clone().at_position(place);
                        let count = there.read_u32()?;
                        there.read_ids(count)
                    }
                    _ => Err(CdrError::BadIndirection),
                }
            }
            _ => Err(CdrError::MalformedValuetype),
        }
    }

    fn read_ids(&mut self, count: u32) -> Result<RepositoryIds<'m>, CdrError> {
        if count > self.limits().max_repository_ids {
            return Err(CdrError::LimitExceeded);
        }
        (0..count).map(|_| self.read_repository_id()).collect::<Result<_, _>>().map(RepositoryIds::Many)
    }

    pub(super) fn read_repository_id(&mut self) -> Result<&'m [u8], CdrError> {
        let length = self.read_u32()?;
        let at = self.position() - 4;
        if length != INDIRECTION {
            if let Some(space) = self.usable_value_read_state() {
                space.add_target(self.address(at), IndirectionTarget::Id);
            }
            return self.read_id_text(length);
        }
        match self.read_indirection()? {
            (place, IndirectionTarget::Id) if place < at => {
                let mut there = self.clone().at_position(place);
                let length = there.read_u32()?;
                there.read_id_text(length)
            }
            _ => Err(CdrError::BadIndirection),
        }
    }

    fn read_id_text(&mut self, length: u32) -> Result<&'m [u8], CdrError> {
        if length > self.limits().max_repository_id_length {
            return Err(CdrError::LimitExceeded);
        }
        match self.read_bytes(length as usize)?.split_last() {
            Some((0, id)) => Ok(id),
            Some(_) => Err(CdrError::StringNotTerminated),
            None => Ok(&[]),
        }
    }

    fn read_indirection(&mut self) -> Result<(usize, IndirectionTarget), CdrError> {
        let offset = self.read_i32()?;
        let from = self.position() - 4;
        let back = usize::try_from(offset.unsigned_abs()).map_err(|_| CdrError::BadIndirection)?;
        let place = from.checked_sub(back).filter(|_| offset < 0).ok_or(CdrError::BadIndirection)?;
        let target = self.usable_value_read_state().and_then(|space| space.find_target(self.address(place)));
        Ok((place, target.ok_or(CdrError::BadIndirection)?))
    }

    /// Returns the memory address of a position. Addresses are unique in a message; positions are
    /// not, because they count from the start of each encapsulation.
    pub(super) fn address(&self, position: usize) -> usize {
        self.bytes_from_origin().as_ptr().addr() + position
    }

    fn enter_chunks(&mut self) {
        let bytes = self.bytes_from_origin();
        let chunks = self.chunks_mut();
        if chunks.level == 0 {
            chunks.message = bytes;
        }
        chunks.level += 1;
        self.resume_chunk(false);
    }

    pub(super) fn show_whole_message(&mut self) {
        let (position, full) = (self.position(), self.chunks().message);
        self.set_window(full, position, full.len());
    }

    fn resume_chunk(&mut self, in_chunk: bool) {
        let position = self.position();
        let chunks = *self.chunks();
        if in_chunk {
            return;
        }
        if chunks.level > 0 {
            self.set_window(chunks.message, position, position);
        } else if !chunks.message.is_empty() {
            self.set_window(chunks.message, position, chunks.message.len());
            self.chunks_mut().message = &[];
        }
    }

    fn peek_after_chunk(&self) -> Result<u32, CdrError> {
        self.after_chunk().read_u32()
    }

    /// Returns a decoder at this position that sees the whole message and opens no chunk.
    fn after_chunk(&self) -> Decoder<'m> {
        let mut ahead = self.clone();
        ahead.show_whole_message();
        *ahead.chunks_mut() = Chunks::NONE;
        ahead
    }

    pub(in crate::cdr) fn open_chunk(&mut self) -> Result<(), CdrError> {
        if self.chunks().ended_level != 0 || !self.remaining_bytes().is_empty() {
            return Err(CdrError::MalformedValuetype);
        }
        let full = self.chunks().message;
        let mut ahead = self.after_chunk();
        let size = ahead.read_u32()?;
        if !(1..TAG).contains(&size) {
            return Err(CdrError::MalformedValuetype);
        }
        if size as usize > ahead.remaining_bytes().len() {
            return Err(CdrError::Truncated);
        }
        let start = ahead.position();
        self.set_window(full, start, start + size as usize);
        Ok(())
    }

    /// Skips the unread bytes of this chunk, further chunks, and values between them, to the end of
    /// the value at `level`.
    fn skip_to_end(&mut self, level: u32) -> Result<(), CdrError> {
        let end_of_chunk = self.position() + self.remaining_bytes().len();
        let full = self.chunks().message;
        self.set_window(full, end_of_chunk, full.len());
        loop {
            let next = self.read_u32()?;
            match next {
                0 => {}
                1..TAG => self.skip(next as usize)?,
                TAG.. if next >> 31 == 0 => drop(self.read_value_type(next)?),
                // An end tag for a deeper level ends a skipped value; the search continues.
                _ => {
                    let ended = next.wrapping_neg();
                    if ended <= level {
                        self.chunks_mut().ended_level = ended;
                        return Ok(());
                    }
                }
            }
        }
    }
}
