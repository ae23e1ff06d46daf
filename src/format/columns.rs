//! Metadata values of consecutive samples, held by column as they travel through the writer.

use super::schema::Kind;

/// One metadata value, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// A double.
    Float(f64),
    /// Text.
    Str(&'a str),
}

impl Value<'_> {
    /// Type of the value; `None` for null, which fits every type.
    pub fn kind(self) -> Option<Kind> {
        match self {
            Self::Null => None,
            Self::Bool(_) => Some(Kind::Bool),
            Self::Int(_) => Some(Kind::Int),
            Self::Float(_) => Some(Kind::Float),
            Self::Str(_) => Some(Kind::String),
        }
    }

    /// The value as it fits a column of `kind`: an integer becomes a float only if no digit is lost.
    ///
    /// # Errors
    /// What was found instead, for a message.
    pub fn fit(self, kind: Kind) -> Result<Self, String> {
        match (self, kind) {
            (Self::Int(value), Kind::Float) => exact_float(value)
                .map(Self::Float)
                .ok_or_else(|| format!("the int {value}, which no float holds exactly")),
            (value, kind) => match value.kind() {
                None => Ok(value),
                Some(found) if found == kind => Ok(value),
                Some(found) => Err(format!("{} {}", found.name(), value.excerpt())),
            },
        }
    }

    /// The value for a message, shortened.
    fn excerpt(self) -> String {
        const CHARS_MAX: usize = 40;
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}"),
            Self::Str(text) => match text.char_indices().nth(CHARS_MAX) {
                None => format!("{text:?}"),
                Some((end, _)) => format!("{:?}…", text.get(..end).unwrap_or(text)),
            },
        }
    }
}

/// The double equal to `value`, if there is one.
pub fn exact_float(value: i64) -> Option<f64> {
    let float = value as f64;
    (float as i128 == i128::from(value)).then_some(float)
}

/// Values of one column; nulls hold a default in the typed vector and a mark in `nulls`.
#[derive(Clone, Debug, PartialEq)]
enum Values {
    /// Only nulls so far, so the type is open.
    Open,
    Bool(Vec<bool>),
    Int(Vec<i64>),
    Float(Vec<f64>),
    String {
        text: String,
        ends: Vec<usize>,
    },
}

/// One metadata column of consecutive samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    values: Values,
    /// Empty until the first null; then one mark per row.
    nulls: Vec<bool>,
    len: usize,
}

impl Column {
    /// An empty column, of a known type or of the type of its first value.
    pub fn new(kind: Option<Kind>) -> Self {
        let values = kind.map_or(Values::Open, Values::empty);
        Self {
            values,
            nulls: Vec::new(),
            len: 0,
        }
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Type of the column, once a value has decided it.
    pub fn kind(&self) -> Option<Kind> {
        match &self.values {
            Values::Open => None,
            Values::Bool(_) => Some(Kind::Bool),
            Values::Int(_) => Some(Kind::Int),
            Values::Float(_) => Some(Kind::Float),
            Values::String { .. } => Some(Kind::String),
        }
    }

    /// Whether any row is null.
    pub fn has_nulls(&self) -> bool {
        !self.nulls.is_empty()
    }

    /// Whether any row is NaN or infinite.
    pub fn has_non_finite(&self) -> bool {
        matches!(&self.values, Values::Float(values) if values.iter().any(|value| !value.is_finite()))
    }

    /// Appends a value.
    ///
    /// # Errors
    /// The expected type and what was found, for a message; the column is unchanged.
    pub fn push(&mut self, value: Value<'_>) -> Result<(), (Kind, String)> {
        if let (None, Some(kind)) = (self.kind(), value.kind()) {
            self.values = Values::empty(kind);
            self.values.pad(self.len);
        }
        if let Some(kind) = self.kind() {
            let value = value.fit(kind).map_err(|found| (kind, found))?;
            self.values.push(value);
        }
        let is_null = value == Value::Null;
        if is_null && self.nulls.is_empty() {
            self.nulls = vec![false; self.len];
        }
        if is_null || !self.nulls.is_empty() {
            self.nulls.push(is_null);
        }
        self.len += 1;
        Ok(())
    }

    /// Value of `row`; null beyond the end.
    pub fn get(&self, row: usize) -> Value<'_> {
        if self.nulls.get(row).copied().unwrap_or(false) {
            return Value::Null;
        }
        let value = match &self.values {
            Values::Open => None,
            Values::Bool(values) => values.get(row).copied().map(Value::Bool),
            Values::Int(values) => values.get(row).copied().map(Value::Int),
            Values::Float(values) => values.get(row).copied().map(Value::Float),
            Values::String { text, ends } => {
                let start = row
                    .checked_sub(1)
                    .and_then(|before| ends.get(before))
                    .copied()
                    .unwrap_or(0);
                ends.get(row)
                    .and_then(|&end| text.get(start..end))
                    .map(Value::Str)
            }
        };
        value.unwrap_or(Value::Null)
    }

    /// All values in row order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'_>> {
        (0..self.len).map(|row| self.get(row))
    }
}

impl Values {
    fn empty(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(Vec::new()),
            Kind::Int => Self::Int(Vec::new()),
            Kind::Float => Self::Float(Vec::new()),
            Kind::String => Self::String {
                text: String::new(),
                ends: Vec::new(),
            },
        }
    }

    /// Makes room for `rows` nulls that came before the type was known.
    fn pad(&mut self, rows: usize) {
        match self {
            Self::Open => {}
            Self::Bool(values) => values.resize(rows, false),
            Self::Int(values) => values.resize(rows, 0),
            Self::Float(values) => values.resize(rows, 0.0),
            Self::String { text, ends } => ends.resize(rows, text.len()),
        }
    }

    /// Appends a value that fits; a null takes the place of a default.
    fn push(&mut self, value: Value<'_>) {
        match (self, value) {
            (Self::Bool(values), value) => values.push(matches!(value, Value::Bool(true))),
            (Self::Int(values), Value::Int(value)) => values.push(value),
            (Self::Int(values), _) => values.push(0),
            (Self::Float(values), Value::Float(value)) => values.push(value),
            (Self::Float(values), _) => values.push(0.0),
            (Self::String { text, ends }, value) => {
                if let Value::Str(value) = value {
                    text.push_str(value);
                }
                ends.push(text.len());
            }
            (Self::Open, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_takes_the_type_of_its_first_value_and_keeps_nulls() {
        let mut column = Column::new(None);
        for value in [Value::Null, Value::Str("a"), Value::Null, Value::Str("ü")] {
            column.push(value).unwrap();
        }
        assert_eq!(column.kind(), Some(Kind::String));
        assert_eq!(
            column.iter().collect::<Vec<_>>(),
            [Value::Null, Value::Str("a"), Value::Null, Value::Str("ü")]
        );
    }

    #[test]
    fn an_int_enters_a_float_column_only_when_exact() {
        let mut column = Column::new(Some(Kind::Float));
        column.push(Value::Int(1 << 53)).unwrap();
        assert!(column.push(Value::Int((1 << 53) + 1)).is_err());
        assert!(column.push(Value::Int(i64::MAX)).is_err());
        column.push(Value::Int(i64::MIN)).unwrap();
        assert_eq!(column.len(), 2);
        assert_eq!(column.get(1), Value::Float(-9_223_372_036_854_775_808.0));
    }

    #[test]
    fn no_other_type_mixes() {
        let values = [
            Value::Bool(true),
            Value::Int(1),
            Value::Float(1.0),
            Value::Str("1"),
        ];
        for kind in [Kind::Bool, Kind::Int, Kind::Float, Kind::String] {
            for value in values {
                let fits =
                    value.kind() == Some(kind) || (kind == Kind::Float && value == Value::Int(1));
                assert_eq!(
                    Column::new(Some(kind)).push(value).is_ok(),
                    fits,
                    "{kind:?} {value:?}"
                );
            }
        }
    }

    #[test]
    fn a_refused_value_leaves_the_column_as_it_was() {
        let mut column = Column::new(None);
        column.push(Value::Int(1)).unwrap();
        assert!(column.push(Value::Str("x")).is_err());
        column.push(Value::Int(2)).unwrap();
        assert_eq!(
            column.iter().collect::<Vec<_>>(),
            [Value::Int(1), Value::Int(2)]
        );
    }
}
