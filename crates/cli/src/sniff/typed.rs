//! Arguments and results of captured messages, decoded with the types of an IDL file.

use std::collections::HashMap;

use corelane::TypeCode;
use corelane_idl::ast::Direction;
use corelane_idl::compile::Compilation;
use corelane_wire::{AnyValue, Decoder, Value};
use serde_json::{Map, Value as Json, json};

use crate::idl_types::Types;
use crate::json;
use crate::operations;
use crate::text::excerpt;

/// Maximum number of operations in the map. The captured traffic determines the names, so the map
/// is cleared at this number.
const MAX_KEPT: usize = 10_000;

struct TypedOperation {
    inputs: Vec<(String, TypeCode)>,
    outputs: Vec<(String, TypeCode)>,
    raises: Vec<TypeCode>,
}

pub(super) struct Signatures<'c> {
    compilation: &'c Compilation,
    types: Types<'c>,
    interface: Option<String>,
    known: HashMap<String, Result<TypedOperation, String>>,
}

impl<'c> Signatures<'c> {
    pub(super) fn new(compilation: &'c Compilation, interface: Option<String>) -> Self {
        Signatures { compilation, types: Types::new(compilation), interface, known: HashMap::new() }
    }

    pub(super) fn arguments(&mut self, operation: &str, body: &mut Decoder<'_>) -> Result<Json, String> {
        read_all(&self.operation(operation)?.inputs, body)
    }

    pub(super) fn results(&mut self, operation: &str, body: &mut Decoder<'_>) -> Result<Json, String> {
        read_all(&self.operation(operation)?.outputs, body)
    }

    /// Decodes the members of a user exception with this id. The error is a message for the user.
    pub(super) fn exception(&mut self, operation: &str, id: &str, body: &mut Decoder<'_>) -> Result<Json, String> {
        let raised = self.operation(operation)?.raises.iter().find(|raised| raised.id() == id);
        let raised = raised.ok_or_else(|| format!("`{}` does not raise it", excerpt(operation)))?;
        let members = AnyValue::decode_exception_members(raised, body).and_then(|members| members.value());
        Ok(json::value_to_json(&members.map_err(|error| error.to_string())?, raised))
    }

    fn operation(&mut self, name: &str) -> Result<&TypedOperation, String> {
        if !self.known.contains_key(name) {
            if self.known.len() >= MAX_KEPT {
                self.known.clear();
            }
            let found = self.look_up(name);
            self.known.insert(name.to_owned(), found);
        }
        let known = self.known.get(name).ok_or_else(String::new)?;
        known.as_ref().map_err(String::clone)
    }

    fn look_up(&mut self, name: &str) -> Result<TypedOperation, String> {
        if let Some(operation) = of_every_object(name) {
            return Ok(operation);
        }
        let signature = operations::find(self.compilation, &self.types, self.interface.as_deref(), "", name)?;
        let mut operation = TypedOperation { inputs: Vec::new(), outputs: Vec::new(), raises: Vec::new() };
        if let Some(result) = &signature.result {
            operation.outputs.push(("result".to_owned(), self.types.of(result)?));
        }
        for (direction, name, ty) in &signature.parameters {
            let typed = (name.clone(), self.types.of(ty)?);
            if *direction != Direction::Out {
                operation.inputs.push(typed.clone());
            }
            if *direction != Direction::In {
                operation.outputs.push(typed);
            }
        }
        for exception in &signature.raises {
            operation.raises.push(self.types.of_definition(*exception)?);
        }
        Ok(operation)
    }
}

/// Returns an operation that every object has (CORBA 3.0.3, 4.3), and that no IDL file declares.
fn of_every_object(name: &str) -> Option<TypedOperation> {
    let (inputs, result) = match name {
        "_is_a" => (vec![("logical_type_id".to_owned(), TypeCode::STRING)], TypeCode::BOOLEAN),
        "_non_existent" | "_not_existent" => (Vec::new(), TypeCode::BOOLEAN),
        "_repository_id" => (Vec::new(), TypeCode::STRING),
        "_interface" | "_component" => (Vec::new(), TypeCode::OBJECT),
        _ => return None,
    };
    Some(TypedOperation { inputs, outputs: vec![("result".to_owned(), result)], raises: Vec::new() })
}

fn read_all(parts: &[(String, TypeCode)], body: &mut Decoder<'_>) -> Result<Json, String> {
    let mut values = Map::new();
    for (name, type_code) in parts {
        let value = Value::decode(type_code, body).map_err(|error| format!("`{name}` cannot be read: {error}"))?;
        values.insert(name.clone(), json::value_to_json(&value, type_code));
    }
    Ok(json!(values))
}
