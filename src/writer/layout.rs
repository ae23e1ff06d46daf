//! The metadata columns of one source as its samples teach them: names from the first sample, types from the first
//! value.

use std::path::Path;

use arrow_array::Array;

use crate::error::{CacheError, Result};
use crate::format::arrow_values;
use crate::format::columns::{Column, Value};
use crate::format::row::RowEncoder;
use crate::format::schema::{ColumnSpec, Kind, Schema};

/// What never changes once the column names are known; shared by all chunks.
#[derive(Debug)]
pub(super) struct Layout {
    /// Column names in ascending order.
    pub names: Vec<String>,
    /// The schema, where it is known before the first sample.
    pub declared: Option<Schema>,
    /// Who says what the columns are.
    origin: Origin,
    /// Per column whether nulls are refused.
    strict: Vec<bool>,
    /// Writes rows of these columns.
    pub encoder: RowEncoder,
}

/// Who says what the columns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    FirstSample,
    Source,
    Cache,
}

impl Layout {
    /// Columns of a declared schema.
    pub fn declared(schema: Schema) -> Result<Self> {
        let names: Vec<String> = schema.columns().iter().map(|c| c.name.clone()).collect();
        Schema::check_reserved(&names, 0)?;
        Ok(Self {
            encoder: RowEncoder::new(&names),
            names,
            origin: Origin::Source,
            strict: schema.columns().iter().map(|c| !c.nullable).collect(),
            declared: Some(schema),
        })
    }

    /// Columns of the cache at `path`, to which samples are added. A source that declares a schema must declare the same
    /// columns of the same kinds; nulls are taken unless it says otherwise, whatever the cache has so far.
    ///
    /// # Errors
    /// [`CacheError::Misfit`] for another schema.
    pub fn of_cache(schema: &Schema, declared: Option<&Schema>, path: &Path) -> Result<Self> {
        let names: Vec<String> = schema.columns().iter().map(|c| c.name.clone()).collect();
        let mut joined = schema.columns().to_vec();
        if let Some(declared) = declared {
            if let Some((column, expected, found)) = schema.difference(declared) {
                return Err(CacheError::Misfit {
                    path: path.to_path_buf(),
                    subject: "metadata column",
                    column,
                    expected,
                    found,
                });
            }
            for (column, declared) in joined.iter_mut().zip(declared.columns()) {
                column.nullable |= declared.nullable;
            }
        }
        Ok(Self {
            encoder: RowEncoder::new(&names),
            strict: match declared {
                Some(declared) => declared.columns().iter().map(|c| !c.nullable).collect(),
                None => vec![false; names.len()],
            },
            names,
            origin: Origin::Cache,
            declared: Some(Schema::new(joined).map_err(CacheError::internal)?),
        })
    }

    /// Columns named by the keys of the first sample, in any order.
    pub fn inferred(names: Vec<String>) -> Result<Self> {
        Schema::check_reserved(&names, 0)?;
        let open = |name| ColumnSpec {
            name,
            kind: Kind::String,
            nullable: false,
        };
        let sorted = Schema::new(names.into_iter().map(open).collect())
            .map_err(|fault| CacheError::Sample { row: 0, fault })?;
        let names: Vec<String> = sorted.columns().iter().map(|c| c.name.clone()).collect();
        Ok(Self {
            encoder: RowEncoder::new(&names),
            strict: vec![false; names.len()],
            names,
            origin: Origin::FirstSample,
            declared: None,
        })
    }

    /// The error for a sample with other keys than these.
    pub fn key_fault(&self, row: u64, found: &[&str]) -> CacheError {
        let missing = self
            .names
            .iter()
            .find(|name| !found.contains(&name.as_str()));
        let extra = found.iter().find(|key| {
            self.names
                .binary_search_by(|name| name.as_str().cmp(key))
                .is_err()
        });
        let rule = match self.origin {
            Origin::FirstSample => "every sample needs the keys of the first",
            Origin::Source => "the declared schema names every key",
            Origin::Cache => "what is appended needs the metadata columns of the cache",
        };
        let fault = match (missing, extra) {
            (Some(missing), Some(extra)) => {
                format!("metadata key `{missing}` is missing and `{extra}` is unexpected; {rule}")
            }
            (Some(missing), None) => format!("metadata key `{missing}` is missing; {rule}"),
            (None, Some(extra)) => format!("metadata key `{extra}` is unexpected; {rule}"),
            (None, None) => format!(
                "{} metadata keys where {} belong; {rule}",
                found.len(),
                self.names.len()
            ),
        };
        CacheError::Sample { row, fault }
    }
}

/// What has been learned about each column so far.
#[derive(Clone, Debug)]
pub(super) struct Learned {
    columns: Vec<LearnedColumn>,
}

#[derive(Clone, Debug)]
struct LearnedColumn {
    kind: Option<Kind>,
    /// Whether a null was seen, or declared to be possible.
    nullable: bool,
    /// Whether a null is refused.
    strict: bool,
}

impl Learned {
    /// Nothing but what the layout declares.
    pub fn new(layout: &Layout) -> Self {
        let column = |position: usize| {
            let spec = layout
                .declared
                .as_ref()
                .and_then(|s| s.columns().get(position));
            LearnedColumn {
                kind: spec.map(|spec| spec.kind),
                nullable: spec.is_some_and(|spec| spec.nullable),
                strict: layout.strict.get(position).is_some_and(|strict| *strict),
            }
        };
        Self {
            columns: (0..layout.names.len()).map(column).collect(),
        }
    }

    /// Empty columns of the types known so far.
    pub fn columns(&self) -> Vec<Column> {
        self.columns.iter().map(|c| Column::new(c.kind)).collect()
    }

    /// Puts a value at the end of `column`, which is number `position`.
    ///
    /// # Errors
    /// [`CacheError::MetadataValue`] for another type than the column has, a null where the schema forbids it, or an
    /// int that no float equals in a float column.
    pub fn push(
        &mut self,
        layout: &Layout,
        position: usize,
        column: &mut Column,
        value: Value<'_>,
        row: u64,
    ) -> Result<()> {
        let Some(learned) = self.columns.get_mut(position) else {
            return Err(CacheError::internal(
                "a metadata value beyond the last column",
            ));
        };
        let pushed = if value == Value::Null && learned.strict {
            Err((learned.kind.unwrap_or(Kind::String), "null".to_owned()))
        } else {
            column.push(value)
        };
        match pushed {
            Ok(()) => {
                learned.nullable |= value == Value::Null;
                learned.kind = learned.kind.or_else(|| column.kind());
                Ok(())
            }
            Err((kind, found)) => Err(CacheError::MetadataValue {
                row,
                column: layout.names.get(position).cloned().unwrap_or_default(),
                expected: match learned.strict {
                    true => kind.name().to_owned(),
                    false => format!("{} or null", kind.name()),
                },
                found,
            }),
        }
    }

    /// Puts all values of an array at the end of `column`, which is number `position`; the first is of sample `row`.
    ///
    /// # Errors
    /// As [`Learned::push`].
    pub fn push_array(
        &mut self,
        layout: &Layout,
        position: usize,
        column: &mut Column,
        array: &dyn Array,
        row: u64,
    ) -> Result<()> {
        let Some(learned) = self.columns.get_mut(position) else {
            return Err(CacheError::internal("an array beyond the last column"));
        };
        let before = column.len();
        let misfit = match arrow_values::append(column, array) {
            Err(misfit) => Some((misfit.row, misfit.expected.to_owned(), misfit.found)),
            Ok(()) if learned.strict && column.has_nulls() => {
                let mut values = column.iter().skip(before);
                let null = values.position(|value| value == Value::Null);
                let kind = learned.kind.unwrap_or(Kind::String).name().to_owned();
                null.map(|null| (null, kind, "null".to_owned()))
            }
            Ok(()) => None,
        };
        if let Some((misfit, expected, found)) = misfit {
            return Err(CacheError::MetadataValue {
                row: row.saturating_add(misfit as u64),
                column: layout.names.get(position).cloned().unwrap_or_default(),
                expected,
                found,
            });
        }
        learned.nullable |= column.has_nulls();
        learned.kind = learned.kind.or_else(|| column.kind());
        Ok(())
    }

    /// Takes over what whole columns show.
    pub fn learn(&mut self, columns: &[Column]) {
        for (learned, column) in self.columns.iter_mut().zip(columns) {
            learned.nullable |= column.has_nulls();
            learned.kind = learned.kind.or_else(|| column.kind());
        }
    }

    /// The schema as far as it is known; a column without any value is a nullable string.
    pub fn schema(&self, layout: &Layout) -> Result<Schema> {
        let spec = |(name, learned): (&String, &LearnedColumn)| ColumnSpec {
            name: name.clone(),
            kind: learned.kind.unwrap_or(Kind::String),
            nullable: learned.nullable,
        };
        Schema::new(layout.names.iter().zip(&self.columns).map(spec).collect())
            .map_err(CacheError::internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn key_faults_name_the_missing_and_the_extra_key_and_the_row() {
        let layout = Layout::inferred(names(&["label", "age"])).unwrap();
        assert_eq!(layout.names, ["age", "label"]);
        for (found, parts) in [
            (vec!["age"], vec!["`label` is missing"]),
            (vec!["age", "label", "x"], vec!["`x` is unexpected"]),
            (
                vec!["age", "x"],
                vec!["`label` is missing", "`x` is unexpected"],
            ),
        ] {
            let text = layout.key_fault(7, &found).to_string();
            assert!(text.starts_with("sample 7: "), "{text}");
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn reserved_and_repeated_names_are_refused() {
        assert!(Layout::inferred(names(&["weight"])).is_err());
        assert!(Layout::inferred(names(&["a", "a"])).is_err());
        assert!(Layout::inferred(Vec::new()).unwrap().names.is_empty());
    }

    #[test]
    fn a_type_once_learned_binds_later_chunks() {
        let layout = Layout::inferred(names(&["a"])).unwrap();
        let mut learned = Learned::new(&layout);
        let mut first = learned.columns();
        learned
            .push(&layout, 0, &mut first[0], Value::Null, 0)
            .unwrap();
        learned
            .push(&layout, 0, &mut first[0], Value::Int(1), 1)
            .unwrap();
        let mut second = learned.columns();
        let error = learned
            .push(&layout, 0, &mut second[0], Value::Str("x"), 2)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "sample 2: metadata column `a`: expected int or null, found string \"x\""
        );
        let spec = &learned.schema(&layout).unwrap().columns()[0].clone();
        assert_eq!((spec.kind, spec.nullable), (Kind::Int, true));
    }

    fn spec(name: &str, nullable: bool) -> ColumnSpec {
        ColumnSpec {
            name: name.to_owned(),
            kind: Kind::Float,
            nullable,
        }
    }

    #[test]
    fn columns_of_a_cache_take_nulls_that_nobody_forbids_and_no_other_kind() {
        let cache = Schema::new(vec![spec("a", false), spec("b", true)]).unwrap();
        let path = Path::new("cache");
        let of_cache = |declared: Option<Vec<ColumnSpec>>| {
            let declared = declared.map(|columns| Schema::new(columns).unwrap());
            Layout::of_cache(&cache, declared.as_ref(), path)
        };
        let layout = of_cache(None).unwrap();
        let mut learned = Learned::new(&layout);
        assert_eq!(learned.schema(&layout).unwrap(), cache);
        let mut columns = learned.columns();
        let column = &mut columns[0];
        learned.push(&layout, 0, column, Value::Null, 0).unwrap();
        assert!(learned.schema(&layout).unwrap().columns()[0].nullable);
        let error = learned.push(&layout, 0, column, Value::Str("x"), 1);
        let told = error.unwrap_err().to_string();
        assert!(
            told.ends_with("expected float or null, found string \"x\""),
            "{told}"
        );

        let strict = of_cache(Some(vec![spec("a", true), spec("b", false)])).unwrap();
        let mut learned = Learned::new(&strict);
        assert!(learned.schema(&strict).unwrap().columns()[0].nullable);
        let mut columns = learned.columns();
        let refused = learned.push(&strict, 1, &mut columns[1], Value::Null, 0);
        assert!(refused.is_err());

        let int = ColumnSpec {
            kind: Kind::Int,
            ..spec("b", true)
        };
        for (columns, told) in [
            (vec![spec("a", false)], "`b` is float or null in the cache"),
            (
                vec![spec("a", false), spec("b", true), spec("c", false)],
                "`c` is no column in the cache, the source declares float",
            ),
            (
                vec![spec("a", false), int],
                "the source declares int or null",
            ),
        ] {
            let error = of_cache(Some(columns)).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        let told = layout.key_fault(0, &["a"]).to_string();
        assert!(
            told.contains("`b` is missing") && told.contains("of the cache"),
            "{told}"
        );
    }

    #[test]
    fn a_declared_column_keeps_its_nullability() {
        let schema = Schema::new(vec![spec("a", false), spec("b", true)]).unwrap();
        let layout = Layout::declared(schema.clone()).unwrap();
        let mut learned = Learned::new(&layout);
        let mut columns = learned.columns();
        assert!(
            learned
                .push(&layout, 0, &mut columns[0], Value::Null, 0)
                .is_err()
        );
        learned
            .push(&layout, 0, &mut columns[0], Value::Int(3), 0)
            .unwrap();
        assert_eq!(columns[0].get(0), Value::Float(3.0));
        assert_eq!(learned.schema(&layout).unwrap(), schema);
    }
}
