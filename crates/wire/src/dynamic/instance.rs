//! Values (IDL `valuetype`) in trees: each once with its state, and where it comes again its number.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use super::transfer::{CUSTOM, Part, known_part};
use super::value::{Instance, Reader, Value, Writer};
use crate::cdr::{CdrError, Decoder, Encoder, ValueHead};
use crate::typecode::{Kind, View};

/// Modifier of value types.
const TRUNCATABLE: i16 = 3;

impl Reader {
    /// A value, null, or one that came before.
    pub(super) fn instance(&mut self, view: View<'_>, d: &mut Decoder<'_>) -> Result<Value, CdrError> {
        let start = match d.read_value_head()? {
            ValueHead::Null => return Ok(Value::Null),
            ValueHead::Again(number, position) => {
                return match self.numbers.get(&number) {
                    Some((known, own)) if own.view().can_stand_for(view) => Ok(Value::Again(*known)),
                    Some(_) => Err(CdrError::WrongValueType),
                    // It stands outside what is read here.
                    None => d.read_again(number, position, |d| self.instance(view, d)),
                };
            }
            ValueHead::Value(start) => start,
        };
        let Part { type_code, .. } = known_part(view, &start, d, None)?;
        let type_code = type_code.unwrap_or_else(|| view.to_type_code());
        if !type_code.view().can_stand_for(view) {
            return Err(CdrError::WrongValueType);
        }
        let number = u32::try_from(self.numbers.len()).map_err(|_| CdrError::OverLimit)?;
        self.numbers.insert(start.number, (number, type_code.clone()));
        // What is known of unions goes by their place in memory, and this type may go when the value is over.
        let arms = std::mem::take(&mut self.arms);
        let mut state = Vec::new();
        for member in state_types(type_code.view())? {
            state.push(self.value(member, d)?);
        }
        self.arms = arms;
        d.end_value(&start)?;
        Ok(Value::Instance(Box::new(Instance { number, type_code, state })))
    }
}

impl<'v> Writer<'v> {
    /// A value, null, or one that came before.
    pub(super) fn instance(&mut self, value: &'v Value, view: View<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let identity = Arc::clone(self.identity.get_or_insert_default());
        let address = Arc::as_ptr(&identity).addr();
        match value {
            Value::Null => {
                e.write_null_value();
                Ok(())
            }
            Value::Again(number) => {
                let begun = self.begun.get(number).is_some_and(|own| own.can_stand_for(view));
                if begun && e.write_known_value((address, *number))? { Ok(()) } else { Err(CdrError::NotOfType) }
            }
            Value::Instance(instance) => {
                let Instance { number, type_code, state } = &**instance;
                let own = type_code.view().resolved();
                if !own.can_stand_for(view) || self.begun.insert(*number, own).is_some() {
                    return Err(CdrError::NotOfType);
                }
                let known = own.to_type_code();
                // What the TypeCode of the place tells needs not be remembered.
                if known != view.to_type_code() {
                    self.met.add(own.id(), &known);
                }
                let types = state_types(own)?;
                if types.len() != state.len() {
                    return Err(CdrError::NotOfType);
                }
                let ids = ids(own)?;
                let chunked = ids.len() > 1;
                let keep = || -> Arc<dyn Any + Send + Sync> { identity };
                let value = e.begin_unknown_value((address, *number), keep, ids.into_iter(), chunked)?;
                for (member, ty) in state.iter().zip(types) {
                    self.value(member, ty, e)?;
                }
                e.end_value(value)
            }
            _ => Err(CdrError::NotOfType),
        }
    }
}

/// The types of a value's state, those of its bases first.
fn state_types(view: View<'_>) -> Result<Vec<View<'_>>, CdrError> {
    match view.kind() {
        Kind::ValueBox => Ok(vec![view.content().ok_or(CdrError::BadType)?]),
        _ if view.modifier() == CUSTOM => Err(CdrError::CustomValue),
        _ => Ok(view.bases()?.into_iter().rev().flat_map(View::members).map(|member| member.ty).collect()),
    }
}

/// Its repository id, and those of the types to which it can be truncated.
fn ids(view: View<'_>) -> Result<Vec<Cow<'static, str>>, CdrError> {
    if view.kind() == Kind::ValueBox {
        return Ok(vec![Cow::Owned(view.id().to_owned())]);
    }
    let bases = view.bases()?;
    let truncated = bases.iter().take_while(|base| base.modifier() == TRUNCATABLE).count();
    Ok(bases.iter().take(truncated + 1).map(|base| Cow::Owned(base.id().to_owned())).collect())
}
