// An ordinary Express application. Each request finds `notes` as it was before the first one.
import express from 'express';

const notes = ['a first note'];
const app = express();
app.use(express.json());

app.get('/notes', (request, response) => response.json(notes));

app.post('/notes', (request, response) => {
  notes.push(request.body.text);
  response.status(201).json(notes);
});

app.get('/fail', () => {
  throw new Error('this request only');
});

app.listen(3000);
