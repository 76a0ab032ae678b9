//! Generation of stubs that read the last result into memory of the caller.

use super::Generator;
use super::interface::{Call, invocation};
use super::names::free;
use super::path::Part;
use super::writer::{CodeLine, CodeWriter};
use crate::model::{DefinitionId, Type};
use std::collections::HashSet;

impl Generator<'_> {
    /// Writes the stub `OPERATION_into` of an operation whose last result is a sequence that is read
    /// in bulk. `taken` has the names of the reference type's methods.
    pub(super) fn stub_into(
        &mut self,
        interface: DefinitionId,
        call: &Call,
        taken: &mut HashSet<String>,
        out: &mut CodeWriter,
    ) {
        let outputs = call.outputs();
        let Some(((ty, last), others)) = outputs.split_last() else { return };
        let Type::Sequence(element, bound) = self.model().unaliased(ty).clone() else { return };
        if !self.is_plain(&element) || !call.context.is_empty() {
            return;
        }
        let plain = call.method.trim_start_matches("r#");
        let method = free(format!("{plain}_into"), taken);
        let [object, memory, results, e] = ["this", "memory", "results", "e"].map(|name| call.local(name));
        let (operation, reference) = (self.runtime("Operation"), self.runtime("Reference"));
        out.gap();
        out.line(&format!("/// Calls [`{plain}`](Self::{}), and reads the last result into `{memory}`.", call.method));
        out.line("/// Returns the number of its elements.");
        self.head_into(interface, call, &method, &memory, &element, out);
        out.assign(&format!("static OPERATION: {operation}<'_>"), &format!("{operation}::new({:?})", call.wire));
        out.line(&format!("let {object} = {reference}::as_object(self);"));
        let raising = self.errors.contains_key(&(interface, call.raises.clone()));
        out.open(&format!("if {object}.is_collocated() {{"));
        copy_outputs(call, &outputs, &memory, raising, out);
        out.close("}");
        out.open(&format!("let {results} = |d: &mut {}<'_>| {{", self.runtime("Decoder")));
        let mut names = Vec::new();
        let mut inner = ["d", "len", "list", "map", "key", "value", &memory].map(str::to_owned).into();
        for (ty, name) in others {
            let name = free(name.clone(), &mut inner);
            let lines = self.decode_into(ty, &name, "d");
            out.lines(&self.named(lines, Part::Member, &name, "d"));
            names.push(name);
        }
        let last = free(last.clone(), &mut inner);
        let read = CodeLine::Assign(format!("let {last}"), format!("d.read_into({memory}, {bound:?})?"));
        out.lines(&self.named(vec![read], Part::Member, &last, "d"));
        names.push(last);
        match names.as_slice() {
            [one] => out.line(&format!("Ok({one})")),
            _ => out.call("Ok((", &names, "))"),
        }
        out.close("};");
        let method = if raising { "call_into_raising" } else { "call_into" };
        let body = self.encode_arguments(call, &e);
        invocation(&format!("{object}.{method}("), &["&OPERATION".to_owned(), results], &body, &e, out);
        out.close("}");
    }

    fn head_into(
        &mut self,
        interface: DefinitionId,
        call: &Call,
        method: &str,
        memory: &str,
        element: &Type,
        out: &mut CodeWriter,
    ) {
        let (_, mut parameters, _) = self.signature(interface, call);
        let (element, result_memory) = (self.owned(element), self.runtime("ResultMemory"));
        parameters.push(format!("{memory}: &mut (impl {result_memory}<{element}> + ?Sized)"));
        let mut types: Vec<String> = call.outputs().iter().map(|(ty, _)| self.owned(ty)).collect();
        types.pop();
        types.push("usize".to_owned());
        let types = match types.as_slice() {
            [one] => one.clone(),
            _ => format!("({})", types.join(", ")),
        };
        let error = self.error_type(interface, call);
        out.signature(&format!("pub fn {method}("), &parameters, &format!("Result<{types}, {error}>"), " {");
        out.open_again();
    }
}

/// Writes the statements that call an object of the same process and copy its last result to
/// `memory`.
fn copy_outputs(call: &Call, outputs: &[(Type, String)], memory: &str, raising: bool, out: &mut CodeWriter) {
    let mut taken = HashSet::from([memory.to_owned()]);
    let mut names: Vec<String> = outputs.iter().map(|(_, name)| free(name.clone(), &mut taken)).collect();
    let pattern = match names.as_slice() {
        [one] => format!("let {one}"),
        _ => format!("let ({})", names.join(", ")),
    };
    let mut arguments: Vec<String> = call.inputs().map(|(_, name)| name.clone()).collect();
    let joined = arguments.join(", ");
    let mut before = format!("self.{}(", call.method);
    if joined.len() > 60 || !out.has_room(4 + before.len() + joined.len() + 3) {
        before = format!("Self::{}(", call.method);
        arguments.insert(0, "self".to_owned());
    }
    out.assign_call(&pattern, &before, &arguments, ")?;");
    let last = names.pop().unwrap_or_default();
    let copy = format!("corelane::mapping::copy_result(&{last}, {memory})");
    match names.as_slice() {
        [] if raising => out.line(&format!("return Ok({copy}?);")),
        [] => out.line(&format!("return {copy};")),
        _ => {
            out.line(&format!("let {last} = {copy}?;"));
            names.push(last);
            out.call("return Ok((", &names, "));");
        }
    }
}
