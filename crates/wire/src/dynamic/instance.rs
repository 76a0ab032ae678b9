//! Values (IDL `valuetype`) in value trees: the first occurrence of an instance has its state. Each
//! further occurrence has the number of that instance.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use super::transfer::{CUSTOM, KnownType, find_known_type};
use super::value::{TreeReader, TreeWriter, Value, ValueInstance};
use crate::cdr::{CdrError, Decoder, Encoder, ValueHead};
use crate::typecode::{TypeCode, TypeCodeKind, View};

const TRUNCATABLE: i16 = 3;

impl TreeReader {
    pub(super) fn instance(&mut self, view: View<'_>, d: &mut Decoder<'_>) -> Result<Value, CdrError> {
        let start = match d.read_value_head()? {
            ValueHead::Null => return Ok(Value::Null),
            ValueHead::Indirection(number, position) => {
                return match self.numbers.get(&number) {
                    Some((known, own)) if own.view().is_substitutable_for(view) => Ok(Value::InstanceRef(*known)),
                    Some(_) => Err(CdrError::UnexpectedValuetype),
                    // The indirection leads outside of this tree, so the value is read again.
                    None => d.reread_value(number, position, |d| self.instance(view, d)),
                };
            }
            ValueHead::Value(start) => start,
        };
        let KnownType { type_code, .. } = find_known_type(view, &start, d, None)?;
        let type_code = type_code.unwrap_or_else(|| view.to_type_code());
        if !type_code.view().is_substitutable_for(view) {
            return Err(CdrError::UnexpectedValuetype);
        }
        // A growing table of numbers has a capacity of up to twice its length, so the charge is for
        // two entries.
        d.charge_block(size_of::<ValueInstance>() + 2 * size_of::<(u32, (u32, TypeCode))>())?;
        let number = u32::try_from(self.numbers.len()).map_err(|_| CdrError::LimitExceeded)?;
        self.numbers.insert(start.value_number, (number, type_code.clone()));
        // The arm tables find a type by its address. The type of this value may be dropped after
        // the value, and a new type may get the same address. So the arms of this type are in
        // separate tables.
        let arms = std::mem::take(&mut self.arms);
        let mut state = Vec::new();
        for member in state_types(type_code.view())? {
            state.push(self.value(member, d)?);
        }
        self.arms = arms;
        d.end_value(&start)?;
        Ok(Value::Instance(Box::new(ValueInstance { number, type_code, state })))
    }
}

impl<'v> TreeWriter<'v> {
    pub(super) fn instance(&mut self, value: &'v Value, view: View<'_>, e: &mut Encoder<'_>) -> Result<(), CdrError> {
        let identity = Arc::clone(self.identity.get_or_insert_default());
        let address = Arc::as_ptr(&identity).addr();
        match value {
            Value::Null => {
                e.write_null_value();
                Ok(())
            }
            Value::InstanceRef(number) => {
                let started_instances =
                    self.started_instances.get(number).is_some_and(|own| own.is_substitutable_for(view));
                if started_instances && e.try_write_indirection((address, *number))? {
                    Ok(())
                } else {
                    Err(CdrError::TypeMismatch)
                }
            }
            Value::Instance(instance) => {
                let ValueInstance { number, type_code, state } = &**instance;
                let own = type_code.view().unaliased();
                if !own.is_substitutable_for(view) || self.started_instances.insert(*number, own).is_some() {
                    return Err(CdrError::TypeMismatch);
                }
                let known = own.to_type_code();
                // A type that the surrounding TypeCode names need not be recorded.
                if known != view.to_type_code() {
                    self.findings.add(own.id(), &known);
                }
                let types = state_types(own)?;
                if types.len() != state.len() {
                    return Err(CdrError::TypeMismatch);
                }
                let ids = ids(own)?;
                let chunked = ids.len() > 1;
                let keep = || -> Arc<dyn Any + Send + Sync> { identity };
                let value = e.begin_new_value((address, *number), keep, ids.into_iter(), chunked)?;
                for (member, ty) in state.iter().zip(types) {
                    self.value(member, ty, e)?;
                }
                e.end_value(value)
            }
            _ => Err(CdrError::TypeMismatch),
        }
    }
}

fn state_types(view: View<'_>) -> Result<Vec<View<'_>>, CdrError> {
    match view.kind() {
        TypeCodeKind::ValueBox => Ok(vec![view.content().ok_or(CdrError::BadTypeCode)?]),
        _ if view.modifier() == CUSTOM => Err(CdrError::CustomValueNotConvertible),
        _ => Ok(view.bases()?.into_iter().rev().flat_map(View::members).map(|member| member.ty).collect()),
    }
}

fn ids(view: View<'_>) -> Result<Vec<Cow<'static, str>>, CdrError> {
    if view.kind() == TypeCodeKind::ValueBox {
        return Ok(vec![Cow::Owned(view.id().to_owned())]);
    }
    let bases = view.bases()?;
    let truncated = bases.iter().take_while(|base| base.modifier() == TRUNCATABLE).count();
    Ok(bases.iter().take(truncated + 1).map(|base| Cow::Owned(base.id().to_owned())).collect())
}
