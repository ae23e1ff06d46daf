//! The metadata schema of a cache: named, typed columns in name order.

use serde::{Deserialize, Serialize};

use super::names::RESERVED_COLUMNS;
use crate::error::{CacheError, Result};
use crate::limits::METADATA_COLUMNS_MAX;

/// Type of a metadata column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// True or false.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// A number of IEEE double precision.
    Float,
    /// Unicode text.
    String,
}

impl Kind {
    /// The word used in manifests and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Float => "float",
            Self::String => "string",
        }
    }
}

/// One column of a schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnSpec {
    /// Column name, also the key in the embedded JSON.
    pub name: String,
    /// Type of its values.
    pub kind: Kind,
    /// Whether a value may be missing; only caches of format 4 have such columns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nullable: bool,
}

impl ColumnSpec {
    /// The column as messages name it, for example `int or null`.
    pub fn describe(&self) -> String {
        let null = if self.nullable { " or null" } else { "" };
        format!("{}{null}", self.kind.name())
    }
}

/// Columns in strictly ascending name order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Schema {
    columns: Vec<ColumnSpec>,
}

impl Schema {
    /// Sorts the columns by name and checks that the names are usable and distinct.
    ///
    /// # Errors
    /// A sentence that names the column and the rule it breaks.
    pub fn new(mut columns: Vec<ColumnSpec>) -> std::result::Result<Self, String> {
        if columns.len() > METADATA_COLUMNS_MAX {
            return Err(format!(
                "{} metadata columns, more than the limit of {METADATA_COLUMNS_MAX}",
                columns.len()
            ));
        }
        columns.sort_by(|a, b| a.name.cmp(&b.name));
        for (column, next) in columns.iter().zip(columns.iter().skip(1)) {
            if column.name == next.name {
                return Err(format!("metadata column `{}` appears twice", column.name));
            }
        }
        Ok(Self { columns })
    }

    /// Columns in name order.
    pub fn columns(&self) -> &[ColumnSpec] {
        &self.columns
    }

    /// The first column of another kind than in `other`, or in one only: its name, and what it is here and there.
    pub fn difference(&self, other: &Self) -> Option<(String, String, String)> {
        let describe = |schema: &Self, name: &str| {
            let column = schema.columns.iter().find(|column| column.name == name);
            column.map_or_else(|| "no column".to_owned(), ColumnSpec::describe)
        };
        let kind = |schema: &Self, name: &str| {
            let column = schema.columns.iter().find(|column| column.name == name);
            column.map(|column| column.kind)
        };
        let names = self.columns.iter().chain(&other.columns);
        let mut names = names.map(|column| column.name.as_str());
        let name = names.find(|name| kind(self, name) != kind(other, name))?;
        Some((name.to_owned(), describe(self, name), describe(other, name)))
    }

    /// Refuses column names that the samples metadata table uses itself.
    ///
    /// # Errors
    /// [`CacheError::Sample`] for `row` with the name.
    pub fn check_reserved(names: &[impl AsRef<str>], row: u64) -> Result<()> {
        match names
            .iter()
            .find(|name| RESERVED_COLUMNS.contains(&name.as_ref()))
        {
            None => Ok(()),
            Some(name) => Err(CacheError::Sample {
                row,
                fault: format!(
                    "metadata column `{}` has a name that the samples metadata table uses itself; rename it",
                    name.as_ref()
                ),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str) -> ColumnSpec {
        ColumnSpec {
            name: name.to_owned(),
            kind: Kind::Int,
            nullable: false,
        }
    }

    #[test]
    fn columns_are_sorted_by_name() {
        let schema = Schema::new(vec![column("b"), column("a")]).unwrap();
        assert_eq!(
            schema
                .columns()
                .iter()
                .map(|c| c.name.as_str())
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
    }

    #[test]
    fn a_repeated_column_is_refused_by_name() {
        assert!(
            Schema::new(vec![column("a"), column("b"), column("a")])
                .unwrap_err()
                .contains("`a`")
        );
    }

    #[test]
    fn names_of_the_samples_table_are_refused() {
        assert!(Schema::check_reserved(&["label", "weight"], 0).is_err());
        assert!(Schema::check_reserved(&["label", "weights"], 0).is_ok());
    }
}
