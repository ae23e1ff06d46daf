//! The metadata of one sample as the JSON object inside its record: keys sorted, no spaces.
//!
//! JSON has no number for NaN and the infinities; a float column of format 4 writes them as the strings `"NaN"`,
//! `"Infinity"` and `"-Infinity"`, which no finite value uses.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};

use super::columns::{Column, Value, exact_float};
use super::schema::{ColumnSpec, Kind, Schema};

/// Writes rows; holds each key in its escaped form.
#[derive(Clone, Debug)]
pub struct RowEncoder {
    /// `{"first":`, then `,"next":` for each later column.
    keys: Vec<Vec<u8>>,
}

impl RowEncoder {
    /// An encoder for columns of these names, which must be sorted.
    pub fn new(names: &[impl AsRef<str>]) -> Self {
        let key = |(position, name): (usize, &_)| {
            let name: &str = AsRef::<str>::as_ref(name);
            let mut key = vec![if position == 0 { b'{' } else { b',' }];
            append_json(&mut key, name);
            key.push(b':');
            key
        };
        Self {
            keys: names.iter().enumerate().map(key).collect(),
        }
    }

    /// Appends row `row` of `columns`, which must be as many as the names.
    pub fn append(&self, columns: &[Column], row: usize, out: &mut Vec<u8>) {
        if self.keys.is_empty() {
            out.push(b'{');
        }
        for (key, column) in self.keys.iter().zip(columns) {
            out.extend_from_slice(key);
            match column.get(row) {
                Value::Null => out.extend_from_slice(b"null"),
                Value::Bool(value) => append_json(out, &value),
                Value::Int(value) => append_json(out, &value),
                Value::Float(value) if value.is_finite() => append_json(out, &value),
                Value::Float(value) => append_json(out, non_finite_name(value)),
                Value::Str(value) => append_json(out, value),
            }
        }
        out.push(b'}');
    }
}

/// Appends a primitive as JSON, which cannot fail: memory does not refuse bytes, and primitives always have a form.
fn append_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let outcome = serde_json::to_writer(&mut *out, value);
    debug_assert!(outcome.is_ok(), "{outcome:?}");
}

fn non_finite_name(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

fn non_finite_value(name: &str) -> Option<f64> {
    match name {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// A decoded value; text is in the arena of its [`Rows`].
#[derive(Clone, Copy, Debug)]
enum Cell {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str { start: usize, end: usize },
}

/// Decoded rows: one cell per column and row, and one arena of text.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    cells: Vec<Cell>,
    text: String,
}

impl Rows {
    /// Decodes one embedded JSON object and appends its values in column order; on an error nothing is appended.
    ///
    /// # Errors
    /// What differs from the schema: a missing, extra, repeated or unsorted key, a value of another type, broken JSON.
    pub fn push(&mut self, schema: &Schema, json: &[u8]) -> Result<(), String> {
        let kept = (self.cells.len(), self.text.len());
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let outcome = RowSeed {
            columns: schema.columns(),
            rows: self,
        }
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
        outcome.map_err(|error| {
            self.cells.truncate(kept.0);
            self.text.truncate(kept.1);
            format!("metadata that does not match the schema: {error}")
        })
    }

    /// Values of row `row` of a table of `width` columns.
    pub fn row(&self, row: usize, width: usize) -> impl Iterator<Item = Value<'_>> {
        let start = row.saturating_mul(width);
        let cells = self
            .cells
            .get(start..start.saturating_add(width))
            .unwrap_or_default();
        cells.iter().map(|cell| match *cell {
            Cell::Null => Value::Null,
            Cell::Bool(value) => Value::Bool(value),
            Cell::Int(value) => Value::Int(value),
            Cell::Float(value) => Value::Float(value),
            Cell::Str { start, end } => Value::Str(self.text.get(start..end).unwrap_or_default()),
        })
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.cells.clear();
        self.text.clear();
    }
}

struct RowSeed<'a> {
    columns: &'a [ColumnSpec],
    rows: &'a mut Rows,
}

impl<'de> DeserializeSeed<'de> for RowSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the schema's columns in name order")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        for column in self.columns {
            if map.next_key_seed(KeySeed(&column.name))?.is_none() {
                return Err(A::Error::custom(format!(
                    "column `{}` is missing",
                    column.name
                )));
            }
            map.next_value_seed(CellSeed {
                column,
                rows: self.rows,
            })?;
        }
        match map.next_key::<String>()? {
            None => Ok(()),
            Some(extra) => Err(A::Error::custom(format!(
                "column `{extra}` is not in the schema"
            ))),
        }
    }
}

/// Accepts exactly one key, without allocating.
struct KeySeed<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key `{}`", self.0)
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<(), E> {
        if key == self.0 {
            Ok(())
        } else {
            Err(E::custom(format!(
                "expected column `{}`, found `{key}`",
                self.0
            )))
        }
    }
}

/// Accepts one value of the column's type and stores it.
struct CellSeed<'a> {
    column: &'a ColumnSpec,
    rows: &'a mut Rows,
}

impl CellSeed<'_> {
    fn store<E: serde::de::Error>(self, kind: Kind, cell: Cell) -> Result<(), E> {
        if kind == self.column.kind {
            self.rows.cells.push(cell);
            Ok(())
        } else {
            Err(self.clash(kind.name()))
        }
    }

    fn clash<E: serde::de::Error>(&self, found: &str) -> E {
        E::custom(format!(
            "column `{}`: expected {}, found {found}",
            self.column.name,
            self.column.describe()
        ))
    }
}

impl<'de> DeserializeSeed<'de> for CellSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for CellSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a {} for column `{}`",
            self.column.describe(),
            self.column.name
        )
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        if self.column.nullable {
            self.rows.cells.push(Cell::Null);
            Ok(())
        } else {
            Err(self.clash("null"))
        }
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.store(Kind::Bool, Cell::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        match (self.column.kind, exact_float(value)) {
            (Kind::Float, Some(float)) => self.store(Kind::Float, Cell::Float(float)),
            _ => self.store(Kind::Int, Cell::Int(value)),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => Err(self.clash("an integer beyond 64 bits")),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.store(Kind::Float, Cell::Float(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        if let (Kind::Float, Some(float)) = (self.column.kind, non_finite_value(value)) {
            return self.store(Kind::Float, Cell::Float(float));
        }
        let start = self.rows.text.len();
        self.rows.text.push_str(value);
        let end = self.rows.text.len();
        self.store(Kind::String, Cell::Str { start, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let column = |name: &str, kind, nullable| ColumnSpec {
            name: name.to_owned(),
            kind,
            nullable,
        };
        Schema::new(vec![
            column("b", Kind::Bool, false),
            column("f", Kind::Float, true),
            column("i", Kind::Int, false),
            column("s\"ü", Kind::String, true),
        ])
        .unwrap()
    }

    fn encode(values: [Value<'_>; 4]) -> Vec<u8> {
        let schema = schema();
        let columns: Vec<Column> = schema
            .columns()
            .iter()
            .zip(values)
            .map(|(spec, value)| {
                let mut column = Column::new(Some(spec.kind));
                column.push(value).unwrap();
                column
            })
            .collect();
        let names: Vec<_> = schema
            .columns()
            .iter()
            .map(|column| column.name.clone())
            .collect();
        let mut out = Vec::new();
        RowEncoder::new(&names).append(&columns, 0, &mut out);
        out
    }

    #[test]
    fn rows_survive_json_bit_for_bit() {
        for float in [
            0.0,
            -0.0,
            0.1,
            1e300,
            5e-324,
            f64::MAX,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ] {
            for text in ["", "a\"\\\n\u{1}", "日本語🙂"] {
                let values = [
                    Value::Bool(true),
                    Value::Float(float),
                    Value::Int(i64::MIN),
                    Value::Str(text),
                ];
                let mut rows = Rows::default();
                rows.push(&schema(), &encode(values)).unwrap();
                let row: Vec<_> = rows.row(0, 4).collect();
                assert_eq!([row[0], row[2], row[3]], [values[0], values[2], values[3]]);
                let Value::Float(found) = row[1] else {
                    panic!("{row:?}")
                };
                assert_eq!(found.to_bits(), float.to_bits());
            }
        }
    }

    #[test]
    fn the_text_is_sorted_compact_json() {
        let text = encode([Value::Bool(false), Value::Null, Value::Int(-1), Value::Null]);
        assert_eq!(
            std::str::from_utf8(&text).unwrap(),
            r#"{"b":false,"f":null,"i":-1,"s\"ü":null}"#
        );
        let mut empty = Vec::new();
        RowEncoder::new(&[""; 0]).append(&[], 0, &mut empty);
        assert_eq!(empty, b"{}");
    }

    #[test]
    fn whatever_differs_from_the_schema_is_refused_and_leaves_no_trace() {
        let mut rows = Rows::default();
        for bad in [
            r#"{}"#,
            r#"{"b":true,"f":1.0,"i":1}"#,
            r#"{"b":true,"f":1.0,"i":1,"s\"ü":"x","z":1}"#,
            r#"{"b":true,"i":1,"f":1.0,"s\"ü":"x"}"#,
            r#"{"b":1,"f":1.0,"i":1,"s\"ü":"x"}"#,
            r#"{"b":true,"f":"nan","i":1,"s\"ü":"x"}"#,
            r#"{"b":true,"f":1.0,"i":1.0,"s\"ü":"x"}"#,
            r#"{"b":true,"f":1.0,"i":9223372036854775808,"s\"ü":"x"}"#,
            r#"{"b":null,"f":1.0,"i":1,"s\"ü":"x"}"#,
            r#"{"b":true,"f":1.0,"i":1,"s\"ü":"x"} x"#,
            r#"[true,1.0,1,"x"]"#,
            "",
        ] {
            assert!(rows.push(&schema(), bad.as_bytes()).is_err(), "{bad}");
            assert!(rows.cells.is_empty());
        }
        rows.push(&schema(), r#"{"b":true,"f":7,"i":1,"s\"ü":"x"}"#.as_bytes())
            .unwrap();
        assert_eq!(rows.row(0, 4).nth(1), Some(Value::Float(7.0)));
    }
}
