//! HTML tables. Each cell has the name of its column, so that a narrow screen can show a row as a
//! list.

use std::fmt::{Display, Write};

use super::chart::escaped;

#[derive(Clone, Debug)]
pub(crate) struct Column {
    name: String,
    remark: String,
    is_text: bool,
}

impl Column {
    pub(crate) fn number(name: impl Into<String>) -> Column {
        Column { name: name.into(), remark: String::new(), is_text: false }
    }

    pub(crate) fn text(name: impl Into<String>) -> Column {
        Column { name: name.into(), remark: String::new(), is_text: true }
    }

    pub(crate) fn remark(mut self, html: String) -> Column {
        self.remark = html;
        self
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    text: String,
    next: usize,
    is_empty: bool,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Table {
        let mut text = String::from("<table><thead><tr>");
        for Column { name, remark, is_text } in &columns {
            let _ = write!(text, "<th{}>{}{remark}</th>", if *is_text { " class=\"left\"" } else { "" }, escaped(name));
        }
        text.push_str("</tr></thead><tbody>");
        Table { columns, text, next: 0, is_empty: true }
    }

    pub(crate) fn row(&mut self) -> &mut Table {
        self.text.push_str(if self.is_empty { "\n<tr>" } else { "</tr>\n<tr>" });
        self.next = 0;
        self.is_empty = false;
        self
    }

    pub(crate) fn heading(&mut self, text: &str) {
        self.row();
        let _ = write!(self.text, "<td class=\"source\" colspan=\"{}\">{}</td>", self.columns.len(), escaped(text));
    }

    pub(crate) fn cell(&mut self, html: impl Display) -> &mut Table {
        self.marked("", html)
    }

    pub(crate) fn plain(&mut self, text: &str) -> &mut Table {
        self.cell(escaped(text))
    }

    pub(crate) fn gap(&mut self, count: usize) {
        (0..count).for_each(|_| _ = self.cell(""));
    }

    pub(crate) fn marked(&mut self, class: &str, html: impl Display) -> &mut Table {
        let column = self.columns.get(self.next);
        let name = column.map_or("", |column| column.name.as_str());
        let left = if column.is_some_and(|column| column.is_text) { "left" } else { "" };
        let classes = format!("{left} {class}");
        let classes = classes.trim();
        let classes = if classes.is_empty() { String::new() } else { format!(" class=\"{classes}\"") };
        let _ = write!(self.text, "<td{classes} data-name=\"{}\">{html}</td>", escaped(name));
        self.next += 1;
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub(crate) fn finish(self) -> String {
        self.text + if self.is_empty { "</tbody></table>\n" } else { "</tr>\n</tbody></table>\n" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_has_the_name_of_its_column() {
        let mut table = Table::new(vec![Column::text("<who>"), Column::number("p50").remark("<i>us</i>".into())]);
        assert!(table.is_empty());
        table.row().plain("a<b").marked("warn", 5);
        table.heading("end");
        assert_eq!(
            table.finish(),
            "<table><thead><tr><th class=\"left\">&lt;who&gt;</th><th>p50<i>us</i></th></tr></thead><tbody>\n\
             <tr><td class=\"left\" data-name=\"&lt;who&gt;\">a&lt;b</td><td class=\"warn\" data-name=\"p50\">5</td></tr>\n\
             <tr><td class=\"source\" colspan=\"2\">end</td></tr>\n</tbody></table>\n"
        );
    }
}
