// The orders of an upstream: a line of ORDERS for each. X-Do has one of its steps fail.
const { appendFileSync, readFileSync } = require('node:fs');

exports.place = async (key, req) => {
  if (req.headers['x-do'] === 'is busy') throw new Error('rolled back');
  if (!readFileSync(process.env.ORDERS, 'utf8').split('\n').includes(key)) appendFileSync(process.env.ORDERS, key + '\n');
};
exports.confirm = async req => {
  if (req.headers['x-do'] === 'sends no mail') throw new Error('no mail');
};
