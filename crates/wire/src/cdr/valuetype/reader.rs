//! Reading: tags, ids and chunks are checked here, and where an indirection may lead.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::hint::cold_path;
use std::sync::Arc;

use super::{CHUNKED, CODEBASE, ID_LIST, IDS, INDIRECTION, ONE_ID, TAG};
use crate::cdr::{CdrError, Decoder, Encoder};
use crate::typecode::TypeCode;

/// How often the octets of a message are read again, at most.
const MOST_AGAIN: usize = 16;

/// What the values of one message share while they are read: where they, and the ids in front of them, stand.
///
/// Made anew for each message; [`Decoder::with_values`] takes it. Costs nothing until a value comes.
#[derive(Default)]
pub struct ValueSpace {
    /// Behind one pointer, so that a space in which no value is read is quickly made and dropped.
    seen: RefCell<Option<Box<Seen>>>,
    /// Asks what the decoder's environment knows.
    ask: Option<AskType>,
    convert: Option<ConvertCustom>,
}

/// TypeCodes of values by their repository ids.
pub(crate) type ValueTypes = Arc<[(Box<str>, TypeCode)]>;

/// Asks a decoder's environment for the TypeCode of the value type with a repository id.
pub type AskType = fn(&(dyn Any + Sync), &[u8]) -> Option<TypeCode>;

/// Reads a custom value from its tag on with the code that it belongs to, and writes it.
pub type ConvertCustom = fn(&mut Decoder<'_>, &mut Encoder<'_>) -> Result<(), CdrError>;

#[derive(Default)]
struct Seen {
    /// Addresses of octets, so that an encapsulation's do not meet those around it; in order of reading, and so mostly sorted.
    marks: Vec<(usize, Target)>,
    /// The chunked values around each value.
    levels: Vec<u32>,
    /// Values around the one that is being read.
    depth: u32,
    /// Octets that were read again.
    again: usize,
    /// Types of values that are known by their repository ids.
    types: Option<ValueTypes>,
    store: Option<Arc<dyn Any + Send + Sync>>,
}

/// What an indirection may lead to.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Target {
    Value(u32),
    Id,
    IdList,
}

impl ValueSpace {
    /// A space in which nothing was read.
    #[must_use]
    #[inline]
    pub const fn new() -> ValueSpace {
        ValueSpace { seen: RefCell::new(None), ask: None, convert: None }
    }

    /// Values in an `any` whose types inherit from those of its TypeCode are kept whole where `ask` knows their types.
    #[must_use]
    #[inline]
    pub const fn with_types(mut self, ask: AskType) -> ValueSpace {
        self.ask = Some(ask);
        self
    }

    /// Custom values in an `any` are converted by `convert` where they are needed in another form.
    #[must_use]
    #[inline]
    pub const fn with_custom(mut self, convert: ConvertCustom) -> ValueSpace {
        self.convert = Some(convert);
        self
    }

    pub(crate) fn knowing(types: Option<ValueTypes>) -> ValueSpace {
        let seen = types.map(|types| Box::new(Seen { types: Some(types), ..Seen::default() }));
        ValueSpace { seen: RefCell::new(seen), ask: None, convert: None }
    }

    /// Something that whoever reads values keeps for all of them; made with the first.
    pub fn store(&self, make: impl FnOnce() -> Arc<dyn Any + Send + Sync>) -> Arc<dyn Any + Send + Sync> {
        let mut seen = self.seen.borrow_mut();
        Arc::clone(seen.get_or_insert_default().store.get_or_insert_with(make))
    }

    /// Values around the place that is being read.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.seen.borrow().as_ref().map_or(0, |seen| seen.depth)
    }

    pub(super) fn add(&self, at: usize, target: Target) {
        let mut seen = self.seen.borrow_mut();
        let marks = &mut seen.get_or_insert_default().marks;
        // Encapsulations lie within what is around them, so addresses come in order, but for ids of a skipped part.
        let place = match marks.last() {
            Some((last, _)) if *last >= at => marks.partition_point(|(address, _)| *address < at),
            _ => marks.len(),
        };
        if marks.get(place).is_none_or(|(address, _)| *address != at) {
            marks.insert(place, (at, target));
        }
    }

    pub(super) fn find(&self, at: usize) -> Option<Target> {
        let seen = self.seen.borrow();
        let marks = &seen.as_ref()?.marks;
        let place = marks.binary_search_by_key(&at, |(address, _)| *address).ok()?;
        marks.get(place).map(|(_, target)| *target)
    }

    /// The number of a value: a new one, unless it is read again.
    pub(super) fn add_value(&self, at: usize, level: u32, limit: u32) -> Result<u32, CdrError> {
        let known = self.find(at);
        let number = {
            let mut seen = self.seen.borrow_mut();
            let seen = seen.get_or_insert_default();
            seen.depth += 1;
            if let Some(Target::Value(number)) = known {
                return Ok(number);
            }
            let number = u32::try_from(seen.levels.len()).ok().filter(|number| *number < limit);
            let number = number.ok_or(CdrError::OverLimit)?;
            seen.levels.push(level);
            number
        };
        self.add(at, Target::Value(number));
        Ok(number)
    }

    /// Chunked values around a value.
    fn level(&self, number: u32) -> u32 {
        let seen = self.seen.borrow();
        seen.as_ref().and_then(|seen| seen.levels.get(number as usize).copied()).unwrap_or_default()
    }

    fn known(&self, id: &[u8]) -> Option<TypeCode> {
        let seen = self.seen.borrow();
        let types = seen.as_ref()?.types.as_ref()?;
        types.iter().find(|(known, _)| known.as_bytes() == id).map(|(_, type_code)| type_code.clone())
    }

    pub(super) fn leave(&self) {
        if let Some(seen) = self.seen.borrow_mut().as_mut() {
            seen.depth = seen.depth.saturating_sub(1);
        }
    }
}

impl Drop for ValueSpace {
    /// Finds in place that there is nothing to drop, as there nearly always is not.
    #[inline]
    fn drop(&mut self) {
        let seen = self.seen.get_mut();
        if seen.is_some() {
            cold_path();
            *seen = None;
        }
    }
}

impl fmt::Debug for ValueSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.seen.borrow().as_ref().map_or(0, |seen| seen.levels.len());
        f.debug_struct("ValueSpace").field("values", &values).finish_non_exhaustive()
    }
}

/// Where a decoder is among chunks.
#[derive(Clone, Copy)]
pub(in crate::cdr) struct Chunks<'m> {
    /// All octets, while the decoder sees those of the current chunk only; nothing outside chunked values.
    full: &'m [u8],
    /// Chunked values around the place.
    pub(in crate::cdr) level: u32,
    /// The outermost level that an end tag has ended, while values within it are not left yet; else 0.
    pub(super) ended: u32,
}

impl Chunks<'_> {
    pub(in crate::cdr) const NONE: Self = Chunks { full: &[], level: 0, ended: 0 };

    /// Octets behind a position.
    #[inline]
    pub(in crate::cdr) fn remaining(&self, position: usize) -> usize {
        self.full.len().saturating_sub(position)
    }
}

/// What stands where a value was expected.
#[derive(Debug)]
pub enum ValueHead<'m> {
    /// Null.
    Null,
    /// A value that was met before, by its number and the position of its tag; its reading may not have ended.
    Again(u32, usize),
    /// A value: its state is next, and [`Decoder::end_value`] after that.
    Value(ValueStart<'m>),
}

/// The head of a value.
#[derive(Debug)]
pub struct ValueStart<'m> {
    /// How many values of the space came before.
    pub number: u32,
    /// What is said about its type.
    pub ids: RepositoryIds<'m>,
    /// Whether its state comes in chunks, so that one can stop reading it anywhere.
    pub chunked: bool,
    /// Where its tag stands.
    pub(crate) position: usize,
    /// The level of its chunks.
    pub(super) level: u32,
}

/// The repository ids in front of a value, the most derived first.
#[derive(Debug, PartialEq, Eq)]
pub enum RepositoryIds<'m> {
    /// None: the value is of the type that the reader expects.
    None,
    /// That of its type.
    One(&'m [u8]),
    /// Those of its type and of the types to which it can be truncated.
    Many(Vec<&'m [u8]>),
}

impl<'m> RepositoryIds<'m> {
    /// The ids in order.
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
    /// Reads up to the state of a value.
    ///
    /// # Errors
    /// [`CdrError::BadValue`] for what is no value, [`CdrError::BadIndirection`]; [`CdrError::OverLimit`] for more values or ids, or longer
    /// ones, than the limits allow; [`CdrError::Truncated`]; [`CdrError::Unsupported`] without a [`ValueSpace`], and in a GIOP 1.1
    /// message that came in fragments, where positions mean nothing.
    pub fn read_value_head(&mut self) -> Result<ValueHead<'m>, CdrError> {
        let space = self.value_space().ok_or(CdrError::Unsupported)?;
        let within = self.chunks().level > 0;
        let mut in_chunk = within;
        if within && self.rest().is_empty() {
            // Between chunks stand values, or the next chunk, in which null or an indirection may stand.
            let next = self.peek_between()?;
            if (1..TAG).contains(&next) {
                self.open_chunk()?;
            } else {
                self.see_all();
                in_chunk = false;
            }
        }
        let tag = self.read_u32()?;
        let at = self.position() - 4;
        match tag {
            0 => {
                self.see_chunk(in_chunk);
                Ok(ValueHead::Null)
            }
            INDIRECTION => {
                let (place, target) = self.read_indirection()?;
                self.see_chunk(in_chunk);
                match target {
                    Target::Value(number) if place < at => Ok(ValueHead::Again(number, place)),
                    _ => Err(CdrError::BadIndirection),
                }
            }
            _ if tag >> 8 != TAG >> 8 || tag & 0xff > 0x0f || in_chunk || (within && tag & CHUNKED == 0) => {
                Err(CdrError::BadValue)
            }
            _ => {
                let number = space.add_value(self.address(at), self.chunks().level, self.limits().values)?;
                let ids = self.read_value_type(tag)?;
                let chunked = tag & CHUNKED != 0;
                if chunked {
                    self.enter_chunks();
                }
                Ok(ValueHead::Value(ValueStart { number, ids, chunked, position: at, level: self.chunks().level }))
            }
        }
    }

    /// Ends a value: what was not read of its state is skipped if the state is chunked.
    ///
    /// # Errors
    /// [`CdrError::BadValue`] if its end is not found, [`CdrError::Truncated`].
    pub fn end_value(&mut self, value: &ValueStart<'m>) -> Result<(), CdrError> {
        if let Some(space) = self.value_space() {
            space.leave();
        }
        if !value.chunked {
            return Ok(());
        }
        if self.chunks().ended == 0 || self.chunks().ended > value.level {
            self.skip_to_end(value.level)?;
        }
        let chunks = self.chunks_mut();
        if chunks.ended == value.level {
            chunks.ended = 0;
        }
        chunks.level = value.level.saturating_sub(1);
        self.see_chunk(false);
        Ok(())
    }

    /// The TypeCode of the value type with a repository id, if somebody knows it.
    pub(crate) fn value_type(&self, id: &[u8]) -> Option<TypeCode> {
        let space = self.values()?;
        let asked = || space.ask.zip(self.env()).and_then(|(ask, env)| ask(env, id));
        space.known(id).or_else(asked)
    }

    /// Reads a value again that was met before, from its tag on: what was made of it, or that it was passed over, is of no use to
    /// this reader.
    ///
    /// # Errors
    /// Those of `read`; [`CdrError::OverLimit`] where more is read again than a message with some sharing needs.
    pub fn read_again<T>(
        &self,
        number: u32,
        position: usize,
        read: impl FnOnce(&mut Decoder<'m>) -> Result<T, CdrError>,
    ) -> Result<T, CdrError> {
        let space = self.value_space().ok_or(CdrError::Unsupported)?;
        let full = if self.chunks().level > 0 { self.chunks().full } else { self.bytes() };
        let level = space.level(number);
        let mut there = self.clone();
        *there.chunks_mut() = if level > 0 { Chunks { full, level, ended: 0 } } else { Chunks::NONE };
        there.see(full, position, if level > 0 { position } else { full.len() });
        let value = read(&mut there)?;
        if let Some(seen) = space.seen.borrow_mut().as_mut() {
            seen.again = seen.again.saturating_add(there.position().saturating_sub(position));
            if seen.again > full.len().saturating_mul(MOST_AGAIN) {
                return Err(CdrError::OverLimit);
            }
        }
        Ok(value)
    }

    /// Writes a custom value, whose head was read, with the code that it belongs to.
    ///
    /// # Errors
    /// [`CdrError::CustomValue`] where that is not known; those of that code.
    pub(crate) fn convert_custom(&mut self, start: &ValueStart<'m>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let convert = self.value_space().and_then(|space| space.convert).ok_or(CdrError::CustomValue)?;
        self.read_again(start.number, start.position, |d| convert(d, e)).map_err(|error| match error {
            CdrError::NoValueFactory => CdrError::CustomValue,
            error => error,
        })?;
        self.end_value(start)
    }

    /// Reads codebase and ids behind a tag.
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
                    if let Some(space) = self.value_space() {
                        space.add(self.address(at), Target::IdList);
                    }
                    return self.read_ids(count);
                }
                match self.read_indirection()? {
                    (place, Target::IdList) if place < at => {
                        let mut there = self.clone().at(place);
                        let count = there.read_u32()?;
                        there.read_ids(count)
                    }
                    _ => Err(CdrError::BadIndirection),
                }
            }
            _ => Err(CdrError::BadValue),
        }
    }

    fn read_ids(&mut self, count: u32) -> Result<RepositoryIds<'m>, CdrError> {
        if count > self.limits().repository_ids {
            return Err(CdrError::OverLimit);
        }
        (0..count).map(|_| self.read_repository_id()).collect::<Result<_, _>>().map(RepositoryIds::Many)
    }

    /// Reads a repository id or a codebase, here or where an indirection leads.
    pub(super) fn read_repository_id(&mut self) -> Result<&'m [u8], CdrError> {
        let length = self.read_u32()?;
        let at = self.position() - 4;
        if length != INDIRECTION {
            if let Some(space) = self.value_space() {
                space.add(self.address(at), Target::Id);
            }
            return self.read_id_text(length);
        }
        match self.read_indirection()? {
            (place, Target::Id) if place < at => {
                let mut there = self.clone().at(place);
                let length = there.read_u32()?;
                there.read_id_text(length)
            }
            _ => Err(CdrError::BadIndirection),
        }
    }

    fn read_id_text(&mut self, length: u32) -> Result<&'m [u8], CdrError> {
        if length > self.limits().repository_id {
            return Err(CdrError::OverLimit);
        }
        match self.read_raw(length as usize)?.split_last() {
            Some((0, id)) => Ok(id),
            Some(_) => Err(CdrError::StringNotTerminated),
            None => Ok(&[]),
        }
    }

    /// Reads the offset of an indirection: the position to which it leads, and what stands there.
    fn read_indirection(&mut self) -> Result<(usize, Target), CdrError> {
        let offset = self.read_i32()?;
        let from = self.position() - 4;
        let back = usize::try_from(offset.unsigned_abs()).map_err(|_| CdrError::BadIndirection)?;
        let place = from.checked_sub(back).filter(|_| offset < 0).ok_or(CdrError::BadIndirection)?;
        let target = self.value_space().and_then(|space| space.find(self.address(place)));
        Ok((place, target.ok_or(CdrError::BadIndirection)?))
    }

    /// The address of an octet: what tells places apart across encapsulations.
    pub(super) fn address(&self, position: usize) -> usize {
        self.bytes().as_ptr().addr() + position
    }

    // ---- chunks ------------------------------------------------------------------------------------

    fn enter_chunks(&mut self) {
        let bytes = self.bytes();
        let chunks = self.chunks_mut();
        if chunks.level == 0 {
            chunks.full = bytes;
        }
        chunks.level += 1;
        self.see_chunk(false);
    }

    pub(super) fn see_all(&mut self) {
        let (position, full) = (self.position(), self.chunks().full);
        self.see(full, position, full.len());
    }

    /// Goes on in the chunk, or waits between chunks; outside chunked values all is seen.
    fn see_chunk(&mut self, in_chunk: bool) {
        let position = self.position();
        let chunks = *self.chunks();
        if in_chunk {
            return;
        }
        if chunks.level > 0 {
            self.see(chunks.full, position, position);
        } else if !chunks.full.is_empty() {
            self.see(chunks.full, position, chunks.full.len());
            self.chunks_mut().full = &[];
        }
    }

    /// The long that stands next between chunks.
    fn peek_between(&self) -> Result<u32, CdrError> {
        self.between().read_u32()
    }

    /// A decoder at the same place that sees all octets, and looks for no chunk where they end.
    fn between(&self) -> Decoder<'m> {
        let mut ahead = self.clone();
        ahead.see_all();
        *ahead.chunks_mut() = Chunks::NONE;
        ahead
    }

    /// Opens the next chunk: there is no more to read in this one.
    pub(in crate::cdr) fn open_chunk(&mut self) -> Result<(), CdrError> {
        if self.chunks().ended != 0 || !self.rest().is_empty() {
            return Err(CdrError::BadValue);
        }
        let full = self.chunks().full;
        let mut ahead = self.between();
        let size = ahead.read_u32()?;
        if !(1..TAG).contains(&size) {
            return Err(CdrError::BadValue);
        }
        if size as usize > ahead.rest().len() {
            return Err(CdrError::Truncated);
        }
        let start = ahead.position();
        self.see(full, start, start + size as usize);
        Ok(())
    }

    /// Skips to the end of the value at `level`: the rest of this chunk, further chunks, and values between them.
    fn skip_to_end(&mut self, level: u32) -> Result<(), CdrError> {
        let end_of_chunk = self.position() + self.rest().len();
        let full = self.chunks().full;
        self.see(full, end_of_chunk, full.len());
        loop {
            let next = self.read_u32()?;
            match next {
                // Null values may stand between chunks; end tags are not below the nesting that a message can have.
                0 => {}
                1..TAG => self.skip(next as usize)?,
                TAG.. if next >> 31 == 0 => drop(self.read_value_type(next)?),
                _ => {
                    let ended = next.wrapping_neg();
                    if ended <= level {
                        self.chunks_mut().ended = ended;
                        return Ok(());
                    }
                }
            }
        }
    }
}
