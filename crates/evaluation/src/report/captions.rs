use super::*;
pub struct CaptionExample {
    pub id: String,
    pub references: Vec<String>,
    pub caption: String,
    pub verdict: Option<CaptionVerdict>,
}
pub struct CaptionVerdict {
    pub right: bool,
    pub problems: Vec<String>,
}
pub struct CaptionPredictions {}
impl CaptionPredictions {
    pub fn new(_: Vec<CaptionExample>, _: u64) -> crate::Result<Self> {
        todo!()
    }
}
impl Predictions for CaptionPredictions {
    fn len(&self) -> usize {
        0
    }
    fn figures(&self) -> Figures {
        todo!()
    }
    fn is_error(&self, _: usize) -> bool {
        true
    }
    fn loss(&self, _: usize) -> f64 {
        0.0
    }
    fn columns(&self) -> Vec<String> {
        vec![]
    }
    fn row(&self, _: usize) -> Vec<serde_json::Value> {
        vec![]
    }
    fn tables(&self) -> Vec<Table> {
        vec![]
    }
    fn breakdown(&self) -> Markup {
        todo!()
    }
    fn show(&self, _: usize) -> Markup {
        todo!()
    }
}
pub struct CaptionPage {
    pub title: String,
    pub images: Vec<CaptionedImage>,
}
pub struct CaptionedImage {
    pub name: String,
    pub png: Vec<u8>,
    pub width: usize,
    pub height: usize,
    pub grid: [usize; 2],
    pub words: Vec<AttendedWord>,
    pub log_prob: f64,
}
pub struct AttendedWord {
    pub word: String,
    pub attention: Vec<f32>,
}
impl CaptionPage {
    pub fn write(&self, _: &Path) -> crate::Result<()> {
        todo!()
    }
}
